package tests_go

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest"
)

// codeBlock is a fenced block of a Markdown file.
type codeBlock struct {
	file string
	line int
	info string // what follows the opening fence: language, then a file's name
	text string
}

func (b codeBlock) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

// documents returns the Markdown files that this project wrote, by their path below the root.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md", "examples/*/*/*.md", "benchmarks/*.md"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, m := range matches {
			name, err := filepath.Rel(root, m)
			require.NoError(t, err)
			files = append(files, name)
		}
	}
	require.NotEmpty(t, files)
	return files
}

func codeBlocks(t *testing.T) []codeBlock {
	t.Helper()
	var blocks []codeBlock
	for _, name := range documents(t) {
		source, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		var open *codeBlock
		for i, line := range strings.Split(string(source), "\n") {
			info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case fence && open == nil:
				open = &codeBlock{file: name, line: i + 1, info: info}
			case fence:
				blocks = append(blocks, *open)
				open = nil
			case open != nil:
				open.text += line + "\n"
			}
		}
		require.Nil(t, open, "%s: a code block without its end", name)
	}
	return blocks
}

// A Go block is a whole program, which is built and run and whose output is what its "// Output:" comment says, or an
// excerpt whose fence names the file that holds it, line for line.
func TestGoBlocksInDocuments(t *testing.T) {
	programs := 0
	for _, block := range codeBlocks(t) {
		language, source, _ := strings.Cut(block.info, " ")
		if language != "go" {
			continue
		}
		t.Run(block.String(), func(t *testing.T) {
			if strings.HasPrefix(block.text, "package main\n") {
				runProgram(t, block, programs)
				return
			}
			require.NotEmpty(t, source, "an excerpt names its file after the fence: ```go path/of/file.go")
			text, err := os.ReadFile(filepath.Join(root, source))
			require.NoError(t, err)
			require.True(t, strings.Contains(undent(string(text)), undent(block.text)), "not in %s any more:\n%s", source, block.text)
		})
		programs++
	}
}

// runProgram builds the block as a package of this module, through an overlay: nothing is written into the tree.
func runProgram(t *testing.T, block codeBlock, n int) {
	coretest.SkipUnderRace(t)
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte(block.text), 0o644))
	absolute, err := filepath.Abs(root)
	require.NoError(t, err)
	pkg := fmt.Sprintf("internal/docblock%d", n)
	overlay, err := json.Marshal(map[string]any{
		"Replace": map[string]string{filepath.Join(absolute, pkg, "main.go"): source},
	})
	require.NoError(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o644))

	program := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-overlay", overlayFile, "-o", program, "./"+pkg)
	build.Dir = absolute
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	run := exec.Command(program)
	run.Dir = dir
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	requireOutput(t, block, string(out))
}

// requireOutput compares what a program printed with its "// Output:" comment, if it has one.
func requireOutput(t *testing.T, block codeBlock, out string) {
	t.Helper()
	if _, want, ok := strings.Cut(block.text, "// Output:\n"); ok {
		var lines []string
		for line := range strings.Lines(want) {
			comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
			if !ok {
				break
			}
			lines = append(lines, strings.TrimSpace(comment))
		}
		require.Equal(t, strings.Join(lines, "\n"), strings.TrimSpace(undent(out)))
	}
}

func undent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// Every make target that a document names stands in the Makefile, and every relative link leads somewhere.
func TestDocumentsNameWhatExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	target := regexp.MustCompile("(?m)(?:^\\s*|`)make ([a-z][a-z-]*)")
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	goBlock := regexp.MustCompile("(?ms)^ *```go.*?^ *```")
	for _, name := range documents(t) {
		source, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		for _, m := range target.FindAllStringSubmatch(string(source), -1) {
			require.True(t, targets[m[1]], "%s: the Makefile has no target %s", name, m[1])
		}
		prose := goBlock.ReplaceAllString(string(source), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			to := filepath.Join(filepath.Dir(name), m[1])
			_, err := os.Stat(filepath.Join(root, to))
			require.NoError(t, err, "%s: link to %s; pages that only the site has are linked by the file that they are made of", name, m[1])
		}
	}
}

// The table of cases names files and folders that exist: after the first of a row, others lie beside it or in this folder.
func TestCasesNameWhatExists(t *testing.T) {
	source, err := os.ReadFile("README.md")
	require.NoError(t, err)
	quoted, rows := regexp.MustCompile("`([^`]+)`"), 0
	for line := range strings.Lines(string(source)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		rows++
		dir := ""
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			name := m[1]
			if strings.Contains(name, "/") {
				dir = filepath.Dir(name)
			} else if _, err := os.Stat(name); err == nil {
				continue
			} else {
				name = filepath.Join(dir, name)
			}
			_, err := os.Stat(filepath.Join(root, name))
			require.NoError(t, err, line)
		}
	}
	require.Greater(t, rows, 40)
}
