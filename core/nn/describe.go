package nn

import (
	"fmt"
	"reflect"
	"strings"
)

// Describe returns a drawing of a tree of modules, one line for each, with their arguments.
func Describe(m Module) string {
	var b strings.Builder
	describe(&b, m, "")
	return b.String()
}

func describe(b *strings.Builder, m Module, indent string) {
	if absent(m) {
		b.WriteString("nil")
		return
	}
	name, arguments := typeName(m), ""
	if d, ok := m.(interface {
		describe() (name, arguments string)
	}); ok {
		n, a := d.describe()
		arguments = a
		if n != "" {
			name = n
		}
	}
	b.WriteString(name + "(" + arguments)
	children := Children(m)
	for _, c := range children {
		b.WriteString("\n" + indent + "  (" + c.Name + "): ")
		describe(b, c.Module, indent+"  ")
	}
	if len(children) > 0 {
		b.WriteString("\n" + indent)
	}
	b.WriteByte(')')
}

// typeName returns the name of a module's type without package and type arguments.
func typeName(m Module) string {
	t := reflect.TypeOf(m)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

// Children returns the immediate parts of m.
func Children(m Module) []Part {
	var list []Part
	w := walker{}
	w.module = func(name string, part Module) {
		if len(w.above) == 2 {
			list = append(list, Part{name, part})
		}
	}
	w.visit(m, "")
	return list
}

func (f *Func) describe() (name, arguments string) { return f.name, f.arguments }

func (l *Linear) describe() (name, arguments string) {
	if l.Weight.Err() != nil {
		return "", ""
	}
	return "", fmt.Sprintf("in_features=%d, out_features=%d, bias=%v", l.Weight.Size(1), l.Weight.Size(0), l.Bias != nil)
}

func (l *Bilinear) describe() (name, arguments string) {
	if l.Weight.Err() != nil {
		return "", ""
	}
	return "", fmt.Sprintf("in1_features=%d, in2_features=%d, out_features=%d, bias=%v", l.Weight.Size(1), l.Weight.Size(2), l.Weight.Size(0), l.Bias != nil)
}

func (f *Flatten) describe() (name, arguments string) {
	return "", fmt.Sprintf("start_dim=%d, end_dim=%d", f.Start, f.End)
}

func (c *Conv) describe() (name, arguments string) {
	if c.Weight.Err() != nil {
		return "", ""
	}
	w := c.Weight.Shape()
	groups := max(c.Options.Groups, 1)
	return fmt.Sprintf("Conv%dd", len(w)-2), fmt.Sprintf("%d, %d, kernel_size=%v%s", w[1]*groups, w[0], w[2:], convArguments(c.Options.Stride, c.Options.Padding, groups, c.Bias == nil))
}

func (c *ConvTranspose) describe() (name, arguments string) {
	if c.Weight.Err() != nil {
		return "", ""
	}
	w := c.Weight.Shape()
	groups := max(c.Options.Groups, 1)
	return fmt.Sprintf("ConvTranspose%dd", len(w)-2), fmt.Sprintf("%d, %d, kernel_size=%v%s", w[0], w[1]*groups, w[2:], convArguments(c.Options.Stride, c.Options.Padding, groups, c.Bias == nil))
}

func convArguments(stride, padding []int, groups int, noBias bool) string {
	s := ""
	if stride != nil {
		s += fmt.Sprintf(", stride=%v", stride)
	}
	if padding != nil {
		s += fmt.Sprintf(", padding=%v", padding)
	}
	if groups > 1 {
		s += fmt.Sprintf(", groups=%d", groups)
	}
	if noBias {
		s += ", bias=false"
	}
	return s
}

func (l *LayerNorm) describe() (name, arguments string) {
	return "", fmt.Sprintf("%v, eps=%v", l.Shape, l.Eps)
}

func (l *RMSNorm) describe() (name, arguments string) {
	return "", fmt.Sprintf("%v, eps=%v", l.Shape, l.Eps)
}

func (l *GroupNorm) describe() (name, arguments string) {
	return "", fmt.Sprintf("%d groups, eps=%v", l.Groups, l.Eps)
}

func (m *MultiheadAttention) describe() (name, arguments string) {
	return "", fmt.Sprintf("num_heads=%d, dropout=%v", m.Heads, m.Dropout)
}
