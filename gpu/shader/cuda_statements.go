package shader

import (
	"slices"
	"strings"
)

// cudaReserved are names that mean something else in C++ than in WGSL.
var cudaReserved = map[string]bool{}

func init() {
	for _, name := range strings.Fields(`alignas alignof and and_eq asm auto bitand bitor catch char char16_t char32_t class compl concept
		const_cast constexpr decltype delete do double dynamic_cast enum explicit export extern float friend goto inline int long mutable
		namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires short
		signed sizeof static static_assert static_cast template this thread_local throw try typedef typeid typename union unsigned using
		virtual void volatile wchar_t xor xor_eq linux unix subscript program parameters buffer storage narrow`) {
		cudaReserved[name] = true
	}
}

// cudaName returns the name of a variable, function or type in C++.
func cudaName(name string) string {
	if cudaReserved[name] {
		return "cpp_" + name
	}
	return name
}

// block translates the statements of a block, without its braces.
func (t *cudaTranslator) block(list []token) string {
	s := &cudaTranslator{tokens: list, double: t.double}
	var b strings.Builder
	for s.at < len(s.tokens) {
		b.WriteString(s.statement())
	}
	return b.String()
}

// statement takes a token, and the rest of what it begins where that changes as a whole.
func (t *cudaTranslator) statement() string {
	if t.tokens[t.at].kind != tokenName || t.at > 0 && t.tokens[t.at-1].text == "." {
		return t.expressionToken()
	}
	switch t.peek() {
	case "let", "var", "const":
		return t.local()
	case "if", "while":
		keyword := t.next()
		return keyword + " " + t.condition() + " "
	case "loop":
		t.next()
		return "for (;;)"
	case "switch":
		return t.switchStatement()
	case "_":
		if at := t.at; t.next() == "_" && t.take("=") {
			return "(void)"
		} else {
			t.at = at
		}
	}
	return t.expressionToken()
}

// condition takes an expression before a block. WGSL does not want parentheses around it.
func (t *cudaTranslator) condition() string {
	t.space()
	list := t.until("{")
	text := strings.TrimSpace(t.expression(list))
	inner := &cudaTranslator{tokens: list, at: 1}
	if len(list) > 0 && list[0].text == "(" {
		if inner.until(")"); inner.take(")") {
			if inner.space(); inner.at >= len(list) {
				return text
			}
		}
	}
	return "(" + text + ")"
}

// local takes the declaration of a variable, without the semicolon. The name of a variable may occur in its value, where it means another
// thing; in C++ the new variable would hide that.
func (t *cudaTranslator) local() string {
	constant := "const "
	if t.next() == "var" {
		constant = ""
	}
	v := t.variable()
	if !t.take("=") {
		return v.Type + " " + v.Name + " = {}"
	}
	list := t.until(";")
	value := strings.TrimSpace(t.expression(list))
	name := v.Type
	if name == "" {
		name = "auto"
		if plainInteger(list) {
			value = "plait::value(" + value + ")"
		}
	}
	if mentions(list, v.Name) {
		return "const auto cpp_" + v.Name + " = " + value + "; " + constant + name + " " + v.Name + " = cpp_" + v.Name
	}
	return constant + name + " " + v.Name + " = " + value
}

// plainInteger reports whether an expression has an integer without a suffix, other than in an index.
func plainInteger(list []token) bool {
	depth := 0
	for _, t := range list {
		switch {
		case t.text == "[":
			depth++
		case t.text == "]":
			depth--
		case depth == 0 && t.kind == tokenInteger && !strings.ContainsAny(t.text[len(t.text)-1:], "ui"):
			return true
		}
	}
	return false
}

// mentions reports whether an expression has a name, other than that of a member.
func mentions(list []token, name string) bool {
	for i, t := range list {
		if t.kind == tokenName && cudaName(t.text) == name && (i == 0 || list[i-1].text != ".") {
			return true
		}
	}
	return false
}

// switchStatement takes a switch statement. A case of WGSL ends with its block.
func (t *cudaTranslator) switchStatement() string {
	t.next()
	text := "switch (plait::word" + t.condition() + ") {"
	t.take("{")
	for !t.take("}") && t.at < len(t.tokens) {
		text += "\n"
		if t.word() == "default" {
			text += "default:"
		} else {
			for _, value := range splitTokens(t.until(":", "{")) {
				if value == "default" {
					text += "default:"
				} else {
					text += "case " + value + ":"
				}
			}
		}
		t.take(":")
		t.take("{")
		text += " {" + t.block(t.until("}")) + "} break;"
		t.take("}")
	}
	return text + "\n}"
}

// splitTokens splits the list of a case at its commas.
func splitTokens(list []token) (values []string) {
	var text strings.Builder
	for _, t := range list {
		text.WriteString(t.text)
	}
	for v := range strings.SplitSeq(text.String(), ",") {
		if v = strings.TrimSpace(v); v != "" {
			values = append(values, strings.TrimSuffix(v, "i"))
		}
	}
	return values
}

// expression translates an expression.
func (t *cudaTranslator) expression(list []token) string {
	s := &cudaTranslator{tokens: list, double: t.double}
	var b strings.Builder
	for s.at < len(s.tokens) {
		b.WriteString(s.expressionToken())
	}
	return b.String()
}

// expressionToken takes a token of an expression.
func (t *cudaTranslator) expressionToken() string {
	k := t.tokens[t.at]
	t.at++
	switch k.kind {
	case tokenRaw:
		return rawText(k.text)
	case tokenInteger, tokenFloat:
		return t.literal(k)
	case tokenName:
		if t.at >= 2 && t.tokens[t.at-2].text == "." {
			if swizzle(k.text) {
				return k.text + "()"
			}
		}
		if t.double {
			return cudaName(doubleName(k.text))
		}
		return cudaName(k.text)
	}
	return k.text
}

// swizzle reports whether the name of a member names several elements of a vector.
func swizzle(name string) bool {
	return len(name) > 1 && len(name) <= 4 && !slices.ContainsFunc([]byte(name), func(c byte) bool { return !strings.ContainsRune("xyzw", rune(c)) })
}
