package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// corpus is text as a sequence of character codes.
type corpus struct {
	alphabet []rune // by code
	train    []int32
	valid    []int32
}

// readCorpus reads the Go files below a folder, in the order of their names, until there are limit bytes. The last tenth
// is kept for validation. Characters outside ASCII count as '?'.
func readCorpus(root string, limit int) (*corpus, error) {
	var text strings.Builder
	enough := errors.New("enough")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "vendor"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		// Tables of numbers teach a model of text nothing, and licences are all the same.
		if _, body, ok := strings.Cut(string(file), "\npackage "); ok && len(file) < 200_000 && !strings.Contains(string(file), "DO NOT EDIT") {
			text.WriteString("package " + body)
		}
		if text.Len() >= limit {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	if text.Len() < 100_000 {
		return nil, fmt.Errorf("too little Go source below %s: %d bytes", root, text.Len())
	}
	return newCorpus(text.String()), nil
}

func newCorpus(text string) *corpus {
	clean := strings.Map(func(r rune) rune {
		if r >= 0x7f {
			return '?'
		}
		return r
	}, text)
	c := &corpus{}
	codes := map[rune]int32{}
	for _, r := range clean {
		codes[r] = 0
	}
	for r := range codes {
		c.alphabet = append(c.alphabet, r)
	}
	slices.Sort(c.alphabet)
	for i, r := range c.alphabet {
		codes[r] = int32(i)
	}
	sequence := make([]int32, 0, len(clean))
	for _, r := range clean {
		sequence = append(sequence, codes[r])
	}
	cut := len(sequence) / 10 * 9
	c.train, c.valid = sequence[:cut], sequence[cut:]
	return c
}

// encode returns the codes of a text; characters that the corpus lacks are left out.
func (c *corpus) encode(text string) []int32 {
	var codes []int32
	for _, r := range text {
		if i, ok := slices.BinarySearch(c.alphabet, r); ok {
			codes = append(codes, int32(i))
		}
	}
	return codes
}

func (c *corpus) decode(codes []int32) string {
	var b strings.Builder
	for _, code := range codes {
		b.WriteRune(c.alphabet[code])
	}
	return b.String()
}

// goSource returns the folder of the standard library's source.
func goSource() (string, error) {
	candidates := []string{os.Getenv("GOROOT")}
	if out, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	candidates = append(candidates, "/usr/local/go", "/usr/lib/go")
	for _, root := range candidates {
		src := filepath.Join(root, "src")
		if _, err := os.Stat(filepath.Join(src, "fmt", "print.go")); root != "" && err == nil {
			return src, nil
		}
	}
	return "", errors.New("found no Go source tree; name a folder of Go files with -text")
}

// windows is a data set of pieces of a text, one beginning at each character. A batch is two int64 tensors [batch, length]:
// the pieces, and the same moved on by one character, which the model is to predict.
type windows struct {
	text   []int32
	length int
}

func (w windows) Len() int { return max(len(w.text)-w.length, 0) }

func (w windows) Batch(indices []int) ([2]*core.Tensor, error) {
	inputs := make([]int64, 0, len(indices)*w.length)
	targets := make([]int64, 0, len(indices)*w.length)
	for _, begin := range indices {
		for _, code := range w.text[begin : begin+w.length] {
			inputs = append(inputs, int64(code))
		}
		for _, code := range w.text[begin+1 : begin+w.length+1] {
			targets = append(targets, int64(code))
		}
	}
	batch := [2]*core.Tensor{
		core.FromSlice(inputs, len(indices), w.length),
		core.FromSlice(targets, len(indices), w.length),
	}
	return batch, errors.Join(batch[0].Err(), batch[1].Err())
}
