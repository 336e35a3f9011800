package main

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

// sources are the functions of package op as their files have them.
type sources struct {
	files *token.FileSet
	funcs map[string]*ast.FuncDecl
}

func parseSources(dir string) (*sources, error) {
	s := &sources{files: token.NewFileSet(), funcs: map[string]*ast.FuncDecl{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.files, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				s.funcs[f.Name.Name] = f
			}
		}
	}
	return s, nil
}

// signature returns a function's name, parameters and results.
func (s *sources) signature(name string) string {
	var b strings.Builder
	if err := printer.Fprint(&b, s.files, s.funcs[name].Type); err != nil {
		panic(err)
	}
	return name + strings.TrimPrefix(oneLine(b.String()), "func")
}

var docLink = regexp.MustCompile(`\[([A-Z]\w*)\]`)

// more returns what a function's comment says behind its first sentence, which the row says too.
func (s *sources) more(name string) string {
	text := s.funcs[name].Doc.Text()
	if base := s.funcs[strings.TrimSuffix(name, "With")]; base != nil {
		text = base.Doc.Text() // the other is the same with options
	}
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, "\t") {
			paragraphs[i] = oneLine(p)
		}
	}
	first := new(doc.Package).Synopsis(text)
	paragraphs[0] = strings.TrimPrefix(paragraphs[0], first)
	if strings.Count(first, "(") > strings.Count(first, ")") { // the point of "et al." within a source ends no sentence
		_, paragraphs[0], _ = strings.Cut(paragraphs[0], ").")
	}
	text = strings.TrimSpace(strings.Join(paragraphs, "\n\n"))
	return docLink.ReplaceAllStringFunc(text, func(link string) string {
		if n := link[1 : len(link)-1]; s.funcs[n] != nil {
			return "`" + n + "`"
		}
		return link
	})
}
