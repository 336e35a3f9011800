package shader

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
)

// squeeze makes texts that differ in white space equal.
func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestCUDAStatements(t *testing.T) {
	for wgsl, want := range map[string]string{
		"let x = a + 1u;":                        "const auto x = a + 1_u;",
		"let x: u32 = 1;":                        "const u32 x = 1;",
		"var x = 0.5;":                           "auto x = 0.5f;",
		"var x: real;":                           "real x = {};",
		"var x: array<vec4<f32>, 2>;":            "array<vec4<f32>, 2> x = {};",
		"var i = 0;":                             "auto i = plait::value(0);",
		"let v = p[3].x;":                        "const auto v = p[3].x;",
		"const n = 3u;":                          "const auto n = 3_u;",
		"let x = x + 1u;":                        "const auto cpp_x = x + 1_u; const auto x = cpp_x;",
		"var n = a.n;":                           "auto n = a.n;",
		"x = 0x7fu & 5i & 1 & 0x1p3f;":           "x = 0x7f_u & 5_i & 1 & 0x1p3f;",
		"x = 1.0 + .5 + 2e5 + 1.5e-7f + 3f + 4.": "x = 1.0f + .5f + 2e5f + 1.5e-7f + 3.0f + 4.f",
		"let long = short.int;":                  "const auto cpp_long = cpp_short.cpp_int;",
		"v = a.x + b.xy.yx + c.xyzw0;":           "v = a.x + b.xy().yx() + c.xyzw0;",
		"_ = f(x);":                              "(void) f(x);",
		"if a < 1u { return; }":                  "if (a < 1_u) { return; }",
		"if (a) && (b) { x = 1.0; }":             "if ((a) && (b)) { x = 1.0f; }",
		"if (a) { } else if (b) { } else { }":    "if (a) { } else if (b) { } else { }",
		"while (i < n) { i++; }":                 "while (i < n) { i++; }",
		"loop { if (b) { break; } }":             "for (;;) { if (b) { break; } }",
		"for (var i = 0u; i < 4u; i += 2u) { }":  "for (auto i = 0_u; i < 4_u; i += 2_u) { }",
		"for (; i < 4u; i--) { continue; }":      "for (; i < 4_u; i--) { continue; }",
		"switch (i) { case 1u: { x = 1u; } case 2u, 3u { return; } default: { let y = x; } }": "switch (plait::word(i)) {" +
			" case 1u: { x = 1_u; } break; case 2u:case 3u: { return; } break; default: { const auto y = x; } break; }",
		"switch i % 2 { case 0i, default { } }":            "switch (plait::word(i % 2)) { case 0:default: { } break; }",
		"x = bitcast<real>(1u << (a & 31u)); // let it be": "x = bitcast<real>(1_u << (a & 31_u)); // let it be",
		rawBegin + "let x = 1.0;" + rawEnd:                 "let x = 1.0;",
	} {
		got := (&cudaTranslator{}).block(tokenize(wgsl))
		require.Equal(t, squeeze(want), squeeze(got), wgsl)
	}
}

func TestCUDADeclarations(t *testing.T) {
	got := translateCUDA(`alias real = f32;
struct state { sum: real, count: array<u32, 2>, }
var<workgroup> shared_0: array<array<real4, 9>, 16>;
var<private> kept: array<real, 4>;
fn plait_twice(x: f32) -> f32 { return 2.0 * x; }
fn nothing() { }
`+rawBegin+"__device__ void own() {}"+rawEnd+`
@group(0) @binding(0) var<uniform> p: array<word4, 32>;
@group(0) @binding(1) var<storage, read_write> a: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> union: array<atomic_word>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) li: u32) {
  a[li].x = 1u;
}
`, false)
	require.Equal(t, squeeze(`namespace plait {
using real = f32;
struct state {
  real sum;
  array<u32, 2> count;
  state() = default;
  state(real sum, array<u32, 2> count) : sum(sum), count(count) {}
};
__shared__ array<array<real4, 9>, 16> shared_0;
static f32 plait_twice(f32 x);
static f32 plait_twice(f32 x) { return 2.0f * x; }
struct program {
  array<real, 4> kept = {};
  __forceinline__ void nothing() { }
  __device__ void own() {}
  const parameters &p;
  storage<vec4<u32>> a;
  storage<atomic_word> cpp_union;
  __forceinline__ void main(vec3<u32> wg, vec3<u32> grid, u32 li) {
    a[li].x = 1_u;
  }
};
} // namespace plait
extern "C" __global__ void __launch_bounds__(64, 1) plait_main(const __grid_constant__ plait::parameters p, `+
		`const __grid_constant__ plait::buffer b1, const __grid_constant__ plait::buffer b2) {
  plait::program{p, b1, b2}.main({blockIdx.x, blockIdx.y, blockIdx.z}, {gridDim.x, gridDim.y, gridDim.z}, threadIdx.x);
}`), squeeze(got))
}

// compileCUDA compiles a text with the prelude. It skips the test where there is no compiler; CI has one.
func compileCUDA(t *testing.T, text string) error {
	t.Helper()
	if _, _, _, err := nvrtc.Version(); err != nil {
		if os.Getenv("CI") == "true" && runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	_, err := nvrtc.Compile(cudaPrelude+text, t.Name(), 80)
	return err
}

// TestCUDAMeaning has the compiler evaluate what C++ leaves undefined and WGSL defines.
func TestCUDAMeaning(t *testing.T) {
	var b strings.Builder
	b.WriteString("namespace plait {\nconstexpr i32 least = i32(0x80000000u);\n")
	for _, equal := range []string{
		"2147483647_i + 1_i == least",
		"least - 1_i == 2147483647_i",
		"65536_i * 65537_i == 65536_i",
		"-least == least",
		"7_u / 0_u == 7_u",
		"7_u % 0_u == 0_u",
		"7_u / 2_u == 3_u",
		"7_u % 4_u == 3_u",
		"-7_i / 0_i == -7_i",
		"-7_i % 0_i == 0_i",
		"-7_i / 2_i == -3_i",
		"-7_i % 4_i == -3_i",
		"least / -1_i == least",
		"least % -1_i == 0_i",
		"-7_i / -1_i == 7_i",
		"1_u << 33_u == 2_u",
		"0x80000000_u >> 63_u == 1_u",
		"-8_i >> 33_u == -4_i",
		"3_i << 31_u == least",
		"0_u - 1_u == 0xffffffff_u",
		"i32(0xffffffff_u) == -1",
		"u32(-1_i) == 0xffffffff_u",
		"0xffffffff_u > 1_u",
		"-1_i < 1_i",
		"~0_u == 0xffffffff_u",
		"select(1, 2_i, true) == 2_i",
	} {
		b.WriteString("static_assert(" + equal + ");\n")
	}
	b.WriteString("}\n")
	require.NoError(t, compileCUDA(t, b.String()))
	require.Error(t, compileCUDA(t, "namespace plait { static_assert(7_u / 0_u == 6_u); }"), "the compiler evaluates them")
}

// TestCUDATypes checks with the compiler that types of workgroup memory need no constructor, and that vectors are accessed as a whole.
func TestCUDATypes(t *testing.T) {
	require.NoError(t, compileCUDA(t, `namespace plait {
#define CHECK(T, size, alignment) \
  static_assert(sizeof(T) == size && alignof(T) == alignment && __is_trivially_constructible(T) && __is_trivially_copyable(T));
CHECK(u32, 4, 4) CHECK(i32, 4, 4) CHECK(vec2<u32>, 8, 8) CHECK(vec2<f32>, 8, 8) CHECK(vec4<f32>, 16, 16) CHECK(vec4<u32>, 16, 16)
CHECK(vec4<i32>, 16, 16) CHECK(mat2x4<f32>, 32, 16) CHECK(atomic<u32>, 4, 4) CHECK(parameters, 512, 16) CHECK(buffer, 16, 8)
CHECK(narrow16, 2, 2) CHECK(narrow8, 1, 1)
using rows = array<array<vec4<f32>, 3>, 2>;
CHECK(rows, 96, 16)
}
`))
}

// cudaProgram writes a program in CUDA with a body.
func cudaProgram(body func(w *Text)) *Source {
	r := &Recorder{GPU: &Device{Language: CUDA{}}}
	return r.Write(2, func(w *Text) {
		w.text.WriteString(w.Buffer(1, "x", Real4))
		w.text.WriteString(w.Buffer(2, "y", AtomicWord))
		body(w)
	})
}

// TestCUDAProgram compiles a program that uses what kernels may use.
func TestCUDAProgram(t *testing.T) {
	s := cudaProgram(func(w *Text) {
		w.Struct("state", "sum: real", "at: pair")
		w.Private("kept", Real, 2, 3)
		w.Sum(64)
		w.Raw("__device__ float tripled(float x) { return 3 * x; }")
		w.Func("zero() -> state", "return state(0.0, pair(0u, 0u));")
		w.Func("join(a: state, b: state) -> state", "var t = a;\n  t.sum += b.sum;\n  t.at = plait_add_i64(a.at, b.at);\n  return t;")
		w.Main(64)
		w.Add(`  var s = join(zero(), state(plait_exp_f32(x[li].w), pair(li, 1u)));
  kept[1][li %% 3u] = tripled(s.sum);
  switch (li & 3u) {
    case 0u, 1u: { s.sum = -s.sum; }
    case 2u: { if (s.sum > 1.0) { break; } s.at.y = 1u << li; }
    default: { s.at = ~s.at >> pair(1u, 2u); }
  }
  let m = real2x4(x[0], x[1]);
  var total = real4(whole_sum(li, s.sum) + kept[1][0]);
  total = fma(max(m[0], m[1] * 0.5), real4(2.0), select(total, -total, bool4(true, false, any(s.at != pair(1u, 2u)), all(total < m[0]))));
  total = real4(word4(total)) + real4(int4(round(total)));
  loop {
    total.x += fract(total.y) + unpack2x16float(s.at.x).y;
    if (total.x > 4.0) { break; }
  }
  x[li] = clamp(total, real4(), real4(1.0));
  x[li >> 2u][li & 3u] = f32(countLeadingZeros(li)) + f32(min(i32(li), 8) / -3) + dot(total, total);
  let old = %s;
  %s;
  if (%s > old) { %s; %s; }`,
			w.AtomicAdd("y[li]", "1u"), w.AtomicOr("y[0]", "old"), w.AtomicLoad("y[li]"), w.AtomicStore("y[1]", "7u"), w.AtomicAnd("y[2]", "~1u"))
		w.BarrierAll()
	})
	require.Equal(t, 64, s.Threads)
	require.Equal(t, 1, strings.Count(s.Text, "  workgroupBarrier();\n}\n};"), "a barrier is for all memory")
	require.NoError(t, compileCUDA(t, strings.TrimPrefix(s.Text, cudaPrelude)))
}

// TestCUDANarrow reads and writes operands of 16 and 8 bits one by one and four at a time.
func TestCUDANarrow(t *testing.T) {
	r := &Recorder{GPU: &Device{Language: CUDA{}}}
	s := r.Write(4, func(w *Text) {
		for i, d := range []core.DType{core.BFloat16, core.Float16, core.Uint8, core.Bool} {
			a := Access{Name: fmt.Sprintf("x%d", i), DType: d, Shared: i%2 == 0}
			a.Declare(w, i+1)
			a.Loader(w, expr.F32, expr.Number)
			a.Storer(w, expr.F32, expr.Number)
			w.Func("four_"+a.Name+"(e: u32)", "%s%s", a.LoadVec4(w, expr.F32, expr.Number, "e"),
				a.StoreVec4(w, expr.F32, expr.Number, "e", [4]string{a.Name + "_3", a.Name + "_2", a.Name + "_1", a.Name + "_0"}))
		}
		w.Main(64)
		for i := range 4 {
			w.Add("  st_x%[1]d(li, ld_x%[1]d(li + 1u));\n  four_x%[1]d(li * 4u);", i)
		}
	})
	require.NotContains(t, strings.TrimPrefix(s.Text, cudaPrelude), "atomic")
	require.Equal(t, 4, strings.Count(strings.TrimPrefix(s.Text, cudaPrelude), "= load_narrow4("))
	require.NoError(t, compileCUDA(t, strings.TrimPrefix(s.Text, cudaPrelude)))
	require.Error(t, compileCUDA(t, "namespace plait { u32 f(const storage<narrow16> &x) { return x[0_u] >> 1_u; } }"), "an element is no word")
}

// TestCUDAPreludeNames checks that functions of the prelude are those of WGSL, or reserved.
func TestCUDAPreludeNames(t *testing.T) {
	for _, m := range regexp.MustCompile(`(?m)^(?:template <[^>]*> )?(?:struct|using) (?:alignas\([^)]*\)+ )?(\w+)`).FindAllStringSubmatch(cudaPrelude+cudaLibrary, -1) {
		switch name := m[1]; name {
		case "u32", "i32", "f32", "f64", "vec2", "vec3", "vec4", "mat2x4", "array", "atomic", "narrow8", "narrow16":
		default:
			require.NotEqual(t, name, cudaName(name), "a kernel may use the name")
		}
	}
}

// TestCUDADouble translates statements of programs that compute in float64, and compiles one with operands of several dtypes.
func TestCUDADouble(t *testing.T) {
	for wgsl, want := range map[string]string{
		"x = 1.0 + .5 + 2e5 + 0x1p-60f + 3f;": "x = 1.0 + .5 + 2e5 + 0x1p-60 + 3.0;",
		"x = plait_exp_f32(plait_inf());":     "x = plait_exp_f64(plait_inf());",
		"let i = plait_i64_of_f32(x);":        "const auto i = plait_i64_of_f64(x);",
		"let y = f32(x);":                     "const auto y = f32(x);",
	} {
		require.Equal(t, squeeze(want), squeeze((&cudaTranslator{tokens: tokenize(wgsl), double: true}).block(tokenize(wgsl))), wgsl)
	}
	require.Nil(t, WGSL{}.Float64())
	double := CUDA{}.Float64()
	require.True(t, double.Has("plait_erfinv_f32") && double.Has("plait_bessel_k") && double.Has("plait_f32_of_i64"))
	require.True(t, CUDA{}.Has("plait_add_i64") && CUDA{}.Has("plait_pow_f32") && double.Has("plait_add_i64") && double.Has("plait_pow_f32"))
	require.False(t, double.Has("plait_shl_i64") || double.Has("plait_f16") || CUDA{}.Has("plait_erfinv_f32"))
	require.Equal(t, "alias real4 = vec4<f64>;\n", double.Type(Real4))
	require.Equal(t, "alias pair = vec2<u32>;\n", double.Type(Pair))

	r := &Recorder{GPU: &Device{Language: CUDA{}}, Float64: true}
	dtypes := []core.DType{core.Float64, core.Float32, core.BFloat16, core.Float16, core.Int64, core.Int32, core.Uint8, core.Bool}
	s := r.Write(len(dtypes), func(w *Text) {
		for i, d := range dtypes {
			a := Access{Name: fmt.Sprintf("x%d", i), DType: d, Vec4: true}
			a.Declare(w, i+1)
			a.Loader(w, expr.F32, expr.Number)
			a.Storer(w, expr.F32, expr.Number)
			if d.IsFloat() {
				a.loader4(w)
				a.storer4(w)
			}
			w.Func("four_"+a.Name+"(e: u32)", "%s%s", a.LoadVec4(w, expr.F64, expr.Number, "e"),
				a.StoreVec4(w, expr.F64, expr.Number, "e", [4]string{a.Name + "_3", a.Name + "_2", a.Name + "_1", a.Name + "_0"}))
		}
		w.Sum(64)
		w.Main(64)
		for i, d := range dtypes {
			w.Add("  st_x%[1]d(li, whole_sum(li, ld_x%[1]d(li + 1u) * 0.1));\n  four_x%[1]d(li * 4u);", i)
			if d.IsFloat() {
				w.Add("  st4_x%[1]d(li, max(ld4_x%[1]d(li + 1u), real4(0.0)));", i)
			}
		}
		parameter, words := w.RealParam(3)
		require.Equal(t, 2, words)
		w.Add("  st_x0(li, %s + plait_digamma_f32(ld_x0(0u)));", parameter)
	})
	require.Equal(t, (64+8)*8, s.Shared)
	require.NotContains(t, s.Text, "plait_digamma_f32")
	require.NoError(t, compileCUDA(t, strings.TrimPrefix(s.Text, cudaPrelude)))
}

// TestRealParameters checks the words of parameters, and that programs in float64 have keys of their own.
func TestRealParameters(t *testing.T) {
	for _, double := range []bool{false, true} {
		r := &Recorder{GPU: &Device{Language: CUDA{}}, Float64: double}
		s := New(r, "program")
		first := s.RealsOf("parts", core.Memory{Handle: 4096})
		number := s.Float(1.5)
		require.Equal(t, "p[0].x", first)
		if !double {
			require.Equal(t, []uint32{1024, 0x3fc00000}, s.Words)
			require.Equal(t, "bitcast<real>(p[0].y)", number)
			require.Equal(t, core.Float32, r.RealType())
			continue
		}
		require.Equal(t, []uint32{512, 0, 0x3ff80000}, s.Words)
		require.Equal(t, "bitcast<real>(pair(p[0].y, p[0].z))", number)
		require.Equal(t, core.Float64, r.RealType())
	}
}
