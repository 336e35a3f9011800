package op_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plait-ml/plait/core/op"
)

// TestEveryRowIsDocumented holds rows to what the reference, C's header and Python's docstrings print.
func TestEveryRowIsDocumented(t *testing.T) {
	for _, r := range op.Rows() {
		first, _, _ := strings.Cut(r.Doc, "\n")
		assert.Regexp(t, `^\S.*\.$`, first, "%s: the first line is a sentence", r.Name)
		for _, a := range r.Args {
			if a.Name != "input" {
				assert.NotEmpty(t, a.Doc, "%s: argument %s", r.Name, a.Name)
			}
			assert.NotRegexp(t, `\.$`, a.Doc, "%s: argument %s: what arguments are is no sentence", r.Name, a.Name)
		}
	}
}

// TestArgumentsThatAreExplained has no explanation that no row prints.
func TestArgumentsThatAreExplained(t *testing.T) {
	used := map[string]bool{}
	for _, r := range op.Rows() {
		for _, a := range r.Args {
			used[a.Doc] = true
		}
	}
	for name, doc := range op.ArgumentDocs() {
		assert.True(t, used[doc], "%s: %q", name, doc)
	}
}
