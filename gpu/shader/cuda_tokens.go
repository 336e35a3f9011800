package shader

import (
	"regexp"
	"strings"
)

// A tokenKind says what a token of WGSL is.
type tokenKind int

const (
	tokenSpace tokenKind = iota // white space and comments
	tokenName
	tokenInteger
	tokenFloat
	tokenSymbol
	tokenRaw // text in the GPU's own language, which is not translated
)

// A token is a piece of a program in WGSL.
type token struct {
	kind tokenKind
	text string
}

const rawBegin, rawEnd = "/*raw{*/", "/*}raw*/"

// tokens matches a token: the kinds in order, each a group.
var tokens = regexp.MustCompile(`^(?:` +
	`(/\*raw\{\*/(?s:.*?)/\*\}raw\*/)|` +
	`(\s+|//[^\n]*|/\*(?s:.*?)\*/)|` +
	`([A-Za-z_]\w*)|` +
	`(0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d+[fh]?|(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fh]?|\d+[eE][+-]?\d+[fh]?|\d+[fh])|` +
	`(0[xX][0-9a-fA-F]+[iu]?|\d+[iu]?)|` +
	`(->|&&|\|\||<<=?|>>=?|\+\+|--|[-+*/%&|^=!<>]=|.))`)

var tokenKinds = [...]tokenKind{tokenRaw, tokenSpace, tokenName, tokenFloat, tokenInteger, tokenSymbol}

func tokenize(text string) (list []token) {
	for text != "" {
		m := tokens.FindStringSubmatchIndex(text)
		for i, kind := range tokenKinds {
			if m[2+2*i] >= 0 {
				list = append(list, token{kind, text[:m[1]]})
			}
		}
		text = text[m[1]:]
	}
	return list
}

// literal returns a number of WGSL in C++. Integers with a suffix have the types u32 and i32 of the prelude.
func (t *cudaTranslator) literal(number token) string {
	s := number.text
	if number.kind == tokenFloat {
		s = strings.TrimRight(s, "fh")
		if !strings.ContainsAny(s, ".eExX") {
			s += ".0"
		}
		if t.double {
			return s
		}
		return s + "f"
	}
	if last := len(s) - 1; s[last] == 'u' || s[last] == 'i' {
		return s[:last] + "_" + s[last:]
	}
	return s
}
