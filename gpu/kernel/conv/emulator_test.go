package conv

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// A recording is a runtime that keeps programs. If it has a folder, it also runs them: programs for tensor cores by an emulator on the CPU,
// the others by functions of this file.
type recording struct {
	shader.Runtime
	programs map[shader.Key]*shader.Source
	names    map[*shader.Source]string
	memory   [][]byte // by slab
	folder   string
	unknown  map[string]bool // programs that were not run
}

func newRecording() *recording {
	return &recording{
		programs: map[shader.Key]*shader.Source{}, names: map[*shader.Source]string{}, memory: [][]byte{nil}, unknown: map[string]bool{},
	}
}

func (r *recording) Lookup(shader.Key) (shader.Program, error) { return nil, nil }

func (r *recording) Compile(key shader.Key, source *shader.Source) (shader.Program, error) {
	if old := r.programs[key]; old != nil {
		if old.Text != source.Text {
			return nil, fmt.Errorf("two texts have the key %v", key)
		}
		return old, nil
	}
	r.programs[key], r.names[source] = source, key.Name
	return source, nil
}

func (r *recording) Temp(bytes int) (core.Memory, error) {
	r.memory = append(r.memory, nil)
	if r.folder != "" {
		r.memory[len(r.memory)-1] = make([]byte, bytes)
	}
	return core.Memory{Handle: uint64(len(r.memory)-1) << shader.HandleShift, Size: bytes}, nil
}

func (r *recording) Temps() int  { return 0 }
func (r *recording) Release(int) {}
func (r *recording) Flush()      {}
func (r *recording) Feed()       {}

// operand returns a contiguous operand, of numbers in sixteenths if it is filled.
func (r *recording) operand(t core.DType, shape []int, filled bool) core.Operand {
	o := core.Operand{DType: t, Shape: shape, Strides: make([]int, len(shape))}
	n := 1
	for d := len(shape) - 1; d >= 0; d-- {
		o.Strides[d] = n
		n *= shape[d]
	}
	o.Memory, _ = r.Temp(t.Size() * n)
	if bytes := r.bytes(o.Memory); filled {
		for i := range n {
			binary.LittleEndian.PutUint16(bytes[2*i:], core.BFloat16Bits(float32(i*7919%31-15)/16))
		}
	}
	return o
}

func (r *recording) bytes(m core.Memory) []byte { return r.memory[m.Handle>>shader.HandleShift] }

// numbers returns the numbers of an operand.
func (r *recording) numbers(o core.Operand) (list []float64) {
	bytes := r.bytes(o.Memory)
	for ; len(bytes) > 0; bytes = bytes[o.DType.Size():] {
		if o.DType == core.Float32 {
			list = append(list, float64(math.Float32frombits(binary.LittleEndian.Uint32(bytes))))
			continue
		}
		list = append(list, float64(core.BFloat16Value(binary.LittleEndian.Uint16(bytes))))
	}
	return list
}

func (r *recording) Launch(p shader.Program, x, y, _ int, words []uint32, mems []core.Memory) error {
	if x == 0 {
		return fmt.Errorf("an empty grid")
	}
	if r.folder == "" {
		return nil
	}
	source := p.(*shader.Source)
	switch name := r.names[source]; name {
	case "conv (tensor cores)", "conv weights (tensor cores)":
		return r.emulate(source, x*y, words, mems)
	case "conv weights for tensor cores":
		packWeights(words, r.bytes(mems[0]), r.bytes(mems[1]))
	case "conv weights (sums of chunks)":
		addChunks(words, r.bytes(mems[0]), r.bytes(mems[1]))
	default:
		r.unknown[name] = true
	}
	return nil
}

// emulate runs a program for tensor cores.
func (r *recording) emulate(source *shader.Source, groups int, words []uint32, mems []core.Memory) error {
	header, err := filepath.Abs("testdata/emulator.h")
	if err != nil {
		return err
	}
	text := strings.Replace(source.Text, tensorInstructions, "#include \""+header+"\"\n", 1)
	text += "#include \"" + strings.TrimSuffix(header, ".h") + ".cpp\"\n"
	program := filepath.Join(r.folder, strconv.Itoa(len(r.memory)))
	if err := os.WriteFile(program+".cc", []byte(text), 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("g++", "-std=c++17", "-O1", "-w", program+".cc", "-o", program).CombinedOutput(); err != nil {
		return fmt.Errorf("g++: %v\n%s", err, out)
	}
	arguments := []string{strconv.Itoa(groups), program + ".words"}
	var parameters []byte
	for _, w := range words {
		parameters = binary.LittleEndian.AppendUint32(parameters, w)
	}
	if err := os.WriteFile(arguments[1], parameters, 0o600); err != nil {
		return err
	}
	for i, m := range mems {
		arguments = append(arguments, fmt.Sprint(program, ".", i))
		if err := os.WriteFile(arguments[2+i], r.bytes(m), 0o600); err != nil {
			return err
		}
	}
	if out, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %s", err, out)
	}
	last := len(mems) - 1
	result, err := os.ReadFile(arguments[2+last])
	copy(r.bytes(mems[last]), result)
	return err
}

// packWeights does what the program of [convolution.packWeights] does.
func packWeights(words []uint32, to, from []byte) {
	const d0, d1, d2 = 10, 14, 18 // first, step, count and kernel of each dimension
	count, rows, depth, room, channels, group, row, channel := words[2], words[3], words[4], words[5], words[6], words[7], words[8], words[9]
	for i := range count {
		line, place := i/depth, i%depth
		tap, c := place/room, place%room
		k2, k1, k0 := tap%words[d2+2], tap/words[d2+2]%words[d1+2], tap/words[d2+2]/words[d1+2]
		v := uint16(0)
		if c < channels && k0 < words[d0+2] {
			at := ((k0*words[d0+1]+words[d0])*words[d1+3]+k1*words[d1+1]+words[d1])*words[d2+3] + k2*words[d2+1] + words[d2]
			v = binary.LittleEndian.Uint16(from[2*(words[1]+line/rows*group+line%rows*row+c*channel+at):])
		}
		binary.LittleEndian.PutUint16(to[2*(words[0]+i):], v)
	}
}

// addChunks does what the program of [convolution.addChunks] does, for weights in float32.
func addChunks(words []uint32, from, to []byte) {
	count, columns, parts, room, channels, taps := words[2], words[3], words[4], words[5], words[6], words[7]
	for i := range count {
		row, column := i/columns, i%columns
		tap, channel := column/room, column%room
		if tap >= taps || channel >= channels {
			continue
		}
		sum := float32(0)
		for j := range parts {
			sum += math.Float32frombits(binary.LittleEndian.Uint32(from[4*(words[0]+j*count+i):]))
		}
		binary.LittleEndian.PutUint32(to[4*(words[1]+(row*channels+channel)*taps+tap):], math.Float32bits(sum))
	}
}

var emulatedCases = []tensorCase{
	{core.BFloat16, []int{2, 3, 19, 18}, []int{70, 3, 7, 7}, []int{2, 70, 10, 9}, 2, 3, 1, 1},
	{core.BFloat16, []int{2, 40, 7, 8}, []int{24, 40, 3, 3}, []int{2, 24, 7, 8}, 1, 1, 1, 1},
	{core.BFloat16, []int{3, 72, 8, 9}, []int{130, 72, 3, 3}, []int{3, 130, 4, 5}, 2, 1, 1, 1},
	{core.BFloat16, []int{3, 48, 9, 8}, []int{40, 48, 1, 1}, []int{3, 40, 5, 4}, 2, 0, 1, 1},
	{core.BFloat16, []int{3, 20, 6, 6}, []int{72, 20, 1, 1}, []int{3, 72, 6, 6}, 1, 0, 1, 1},
	{core.BFloat16, []int{3, 48, 8, 8}, []int{40, 48, 1, 1}, []int{3, 40, 8, 8}, 1, 0, 1, 1},
	{core.BFloat16, []int{2, 40, 9, 9}, []int{24, 20, 3, 3}, []int{2, 24, 9, 9}, 1, 2, 2, 2},
}

// TestEmulatedTensorPrograms compares convolutions by the programs for tensor cores, run on the CPU, with sums over taps and channels.
func TestEmulatedTensorPrograms(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip(err)
	}
	for i, c := range emulatedCases {
		if testing.Short() && i > 1 {
			break
		}
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			r := newRecording()
			r.folder = t.TempDir()
			recorder := &shader.Recorder{Runtime: r, GPU: tensorGPU(90, 2)}
			x, w, y := r.operand(c.dtype, c.x, true), r.operand(c.dtype, c.w, true), r.operand(c.dtype, c.y, true)
			out, dx, dw := r.operand(c.dtype, c.y, false), r.operand(c.dtype, c.x, false), r.operand(core.Float32, c.w, false)
			require.NoError(t, convForwardCall(recorder, c.call(out, x, w)))
			require.NoError(t, convInputGradCall(recorder, c.call(dx, y, w)))
			require.NoError(t, convWeightGradCall(recorder, c.call(dw, x, y)))
			for name := range r.unknown { // fills positions without taps with zeros, which are there already
				require.Equal(t, "copy.f32", name)
			}
			wantOut, wantX, wantW := c.sums(r.numbers(x), r.numbers(w), r.numbers(y))
			for i, want := range [][]float64{wantOut, wantX, wantW} {
				got := r.numbers([]core.Operand{out, dx, dw}[i])
				require.Len(t, got, len(want))
				for j := range want {
					require.InDelta(t, want[j], got[j], 4e-3*(1+math.Abs(want[j])), "result %d, element %d", i, j)
				}
			}
		})
	}
}

// sums returns the result and both gradients of a convolution, for the gradient y of the result.
func (c tensorCase) sums(x, w, y []float64) (out, dx, dw []float64) {
	out, dx, dw = make([]float64, len(y)), make([]float64, len(x)), make([]float64, len(w))
	channels, outputs := c.w[1], c.w[0]/c.group
	i := 0
	for n := range c.y[0] {
		for o := range c.y[1] {
			for oy := range c.y[2] {
				for ox := range c.y[3] {
					for ch := range channels {
						for ky := range c.w[2] {
							for kx := range c.w[3] {
								iy, ix := oy*c.stride-c.padding+ky*c.dilation, ox*c.stride-c.padding+kx*c.dilation
								if iy < 0 || ix < 0 || iy >= c.x[2] || ix >= c.x[3] {
									continue
								}
								at := ((n*c.x[1]+o/outputs*channels+ch)*c.x[2]+iy)*c.x[3] + ix
								k := ((o*channels+ch)*c.w[2]+ky)*c.w[3] + kx
								out[i] += x[at] * w[k]
								dx[at] += y[i] * w[k]
								dw[k] += y[i] * x[at]
							}
						}
					}
					i++
				}
			}
		}
	}
	return out, dx, dw
}
