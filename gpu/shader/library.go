package shader

import (
	"embed"
	"regexp"
	"sort"
	"strings"
	"sync"
)

//go:embed library/*.wgsl
var libraryFiles embed.FS

// A definition is a function or structure of the library, and the names of the others that it uses.
type definition struct {
	text  string
	order int
	uses  []string
}

var library = sync.OnceValue(func() map[string]*definition {
	defs := map[string]*definition{}
	start := regexp.MustCompile(`(?m)^(?:fn|struct) (\w+)`)
	files, _ := libraryFiles.ReadDir("library")
	for _, f := range files {
		raw, _ := libraryFiles.ReadFile("library/" + f.Name())
		text := regexp.MustCompile(`(?m)^//.*\n`).ReplaceAllString(string(raw), "")
		at := start.FindAllStringSubmatchIndex(text, -1)
		for i, m := range at {
			end := len(text)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			defs[text[m[2]:m[3]]] = &definition{text: strings.TrimSpace(text[m[0]:end]), order: len(defs)}
		}
	}
	for _, d := range defs {
		for _, name := range mentioned(d.text) {
			if other := defs[name]; other != nil && other != d {
				d.uses = append(d.uses, name)
			}
		}
	}
	return defs
})

var libraryName = regexp.MustCompile(`\bplait_\w+`)

func mentioned(text string) []string { return libraryName.FindAllString(text, -1) }

// WithLibrary returns the program preceded by the library functions that it uses, directly or through others, but for those that the language
// has.
func WithLibrary(program string, has func(function string) bool) string {
	defs := library()
	needed := map[string]bool{}
	var add func(names []string)
	add = func(names []string) {
		for _, n := range names {
			if d := defs[n]; d != nil && !needed[n] && !has(n) {
				needed[n] = true
				add(d.uses)
			}
		}
	}
	add(mentioned(program))
	list := make([]*definition, 0, len(needed))
	for n := range needed {
		list = append(list, defs[n])
	}
	sort.Slice(list, func(i, j int) bool { return list[i].order < list[j].order })
	var b strings.Builder
	for _, d := range list {
		b.WriteString(d.text)
		b.WriteString("\n")
	}
	return b.String() + program
}
