package shader

import (
	"fmt"
	"slices"
	"strings"
)

// A cudaTranslator turns a program in WGSL into CUDA C++, token by token. Expressions of WGSL are valid C++ with the types and functions of
// the prelude, so only declarations and statements change. The functions of the program become members of a structure, whose other members
// are what WGSL has as variables of the module: the parameters, the buffers and the private arrays. Functions of the library are not members.
type cudaTranslator struct {
	tokens []token
	at     int
	double bool // the program computes in float64
	types, prototypes,
	functions, members, main strings.Builder
	buffers int
}

// translateCUDA returns a program in CUDA C++, without the prelude.
func translateCUDA(text string, double bool) string {
	t := &cudaTranslator{tokens: tokenize(text), double: double}
	for t.space(); t.at < len(t.tokens); t.space() {
		t.declaration()
	}
	return "\nnamespace plait {\n\n" + t.types.String() + t.prototypes.String() + t.functions.String() +
		"struct program {\n" + t.members.String() + "};\n\n} // namespace plait\n" + t.main.String()
}

// peek returns the text of the next token, and next takes it. Both return "" at the end.
func (t *cudaTranslator) peek() string {
	if t.at >= len(t.tokens) {
		return ""
	}
	return t.tokens[t.at].text
}

func (t *cudaTranslator) next() string {
	s := t.peek()
	t.at++
	return s
}

// space skips white space and comments.
func (t *cudaTranslator) space() {
	for t.at < len(t.tokens) && t.tokens[t.at].kind == tokenSpace {
		t.at++
	}
}

// word takes the next token after white space.
func (t *cudaTranslator) word() string {
	t.space()
	return t.next()
}

// take takes the next token if it is the given one.
func (t *cudaTranslator) take(text string) bool {
	at := t.at
	if t.word() == text {
		return true
	}
	t.at = at
	return false
}

// brackets tells how a token changes the depth of parentheses, brackets and braces.
var brackets = map[string]int{"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}

// until takes the tokens before the first of the given ones that is not in brackets, and leaves that one.
func (t *cudaTranslator) until(ends ...string) []token {
	start, depth := t.at, 0
	for ; t.at < len(t.tokens); t.at++ {
		s := t.peek()
		if depth == 0 && slices.Contains(ends, s) {
			break
		}
		depth += brackets[s]
	}
	return t.tokens[start:min(t.at, len(t.tokens))]
}

// typeName takes a type, such as array<vec4<f32>, 8>.
func (t *cudaTranslator) typeName() string {
	name, depth := cudaName(t.word()), 0
	for {
		at := t.at
		s := t.word()
		switch {
		case s == "<":
			depth++
		case depth > 0 && (s == ">" || s == ">>"):
			depth -= len(s)
		case depth == 0 || s == "":
			t.at = at
			return name
		case s == ",":
			s = ", "
		default:
			s = cudaName(s)
		}
		name += s
	}
}

// variable takes "name: type" with attributes before it, which are dropped.
func (t *cudaTranslator) variable() Variable {
	for t.take("@") {
		t.attribute()
	}
	v := Variable{Name: cudaName(t.word())}
	if t.take(":") {
		v.Type = t.typeName()
	}
	return v
}

// variables takes a list of variables, up to a closing bracket.
func (t *cudaTranslator) variables(end string) (list []Variable) {
	for !t.take(end) && t.at < len(t.tokens) {
		list = append(list, t.variable())
		t.take(",")
	}
	return list
}

// attribute takes the rest of an attribute and returns its name and argument.
func (t *cudaTranslator) attribute() (name, argument string) {
	name = t.word()
	if t.take("(") {
		for _, a := range t.until(")") {
			argument += a.text
		}
		t.take(")")
	}
	return name, argument
}

// declaration takes a declaration of the module.
func (t *cudaTranslator) declaration() {
	if t.tokens[t.at].kind == tokenRaw {
		t.members.WriteString(rawText(t.next()))
		return
	}
	threads := ""
	for t.take("@") {
		if name, argument := t.attribute(); name == "workgroup_size" {
			threads = argument
		}
	}
	switch keyword := t.word(); keyword {
	case "alias":
		name := t.word()
		t.take("=")
		fmt.Fprintf(&t.types, "using %s = %s;\n", name, t.typeName())
		t.take(";")
	case "struct":
		t.structure()
	case "const":
		name := t.variable()
		t.take("=")
		fmt.Fprintf(&t.types, "constexpr auto %s =%s;\n", name.Name, t.expression(t.until(";")))
		t.take(";")
	case "var":
		t.moduleVariable()
	case "fn":
		t.function(threads)
	}
}

// structure takes a structure. In C++ it gets a constructor of its fields, as in WGSL.
func (t *cudaTranslator) structure() {
	name := cudaName(t.word())
	t.take("{")
	fields := t.variables("}")
	t.take(";")
	var params, inits []string
	fmt.Fprintf(&t.types, "struct %s {\n", name)
	for _, f := range fields {
		fmt.Fprintf(&t.types, "  %s %s;\n", f.Type, f.Name)
		params = append(params, f.Type+" "+f.Name)
		inits = append(inits, f.Name+"("+f.Name+")")
	}
	fmt.Fprintf(&t.types, "  %s() = default;\n", name)
	if len(fields) > 0 {
		fmt.Fprintf(&t.types, "  %s(%s) : %s {}\n", name, strings.Join(params, ", "), strings.Join(inits, ", "))
	}
	t.types.WriteString("};\n")
}

// moduleVariable takes a variable of the module after var.
func (t *cudaTranslator) moduleVariable() {
	t.take("<")
	class := t.word()
	t.until(">")
	t.take(">")
	v := t.variable()
	value := "{}"
	if t.take("=") {
		value = t.expression(t.until(";"))
	}
	t.take(";")
	switch class {
	case "uniform":
		fmt.Fprintf(&t.members, "  const parameters &%s;\n", v.Name)
	case "storage":
		t.buffers++
		element := strings.TrimSuffix(strings.TrimPrefix(v.Type, "array<"), ">")
		fmt.Fprintf(&t.members, "  storage<%s> %s;\n", element, v.Name)
	case "workgroup":
		fmt.Fprintf(&t.types, "__shared__ %s %s;\n", v.Type, v.Name)
	case "private":
		fmt.Fprintf(&t.members, "  %s %s = %s;\n", v.Type, v.Name, value)
	}
}

// function takes a function after fn. threads is set for the entry point.
func (t *cudaTranslator) function(threads string) {
	name := cudaName(t.word())
	t.take("(")
	var params []string
	for _, p := range t.variables(")") {
		params = append(params, p.Type+" "+p.Name)
	}
	result := "void"
	if t.take("->") {
		result = t.typeName()
	}
	head := fmt.Sprintf("%s %s(%s)", result, name, strings.Join(params, ", "))
	t.take("{")
	body := t.block(t.until("}"))
	t.take("}")
	if strings.HasPrefix(name, "plait_") {
		fmt.Fprintf(&t.prototypes, "static %s;\n", head)
		fmt.Fprintf(&t.functions, "static %s {%s}\n", head, body)
		return
	}
	fmt.Fprintf(&t.members, "  __forceinline__ %s {%s}\n", head, body)
	if threads != "" {
		t.entry(threads)
	}
}

// entry writes the kernel that calls the main function. It asks for one workgroup of a multiprocessor at least: without that, the compiler
// keeps small programs to 32 registers, and spills others.
func (t *cudaTranslator) entry(threads string) {
	params, args := "const __grid_constant__ plait::parameters p", "p"
	for i := range t.buffers {
		params += fmt.Sprintf(", const __grid_constant__ plait::buffer b%d", i+1)
		args += fmt.Sprintf(", b%d", i+1)
	}
	fmt.Fprintf(&t.main, `extern "C" __global__ void __launch_bounds__(%s, 1) plait_main(%s) {
  plait::program{%s}.main({blockIdx.x, blockIdx.y, blockIdx.z}, {gridDim.x, gridDim.y, gridDim.z}, threadIdx.x);
}
`, threads, params, args)
}

func rawText(text string) string {
	return strings.TrimSuffix(strings.TrimPrefix(text, rawBegin), rawEnd)
}
