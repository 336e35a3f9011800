package tests_go

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest"
)

// A quoted PLAIT_ name in code is an environment variable; macros of C headers are not quoted.
var (
	codeVariable  = regexp.MustCompile(`["']PLAIT_[A-Z0-9_]+["']`)
	tableVariable = regexp.MustCompile("(?m)^\\| `(PLAIT_[A-Z0-9_]+)`")
)

func TestEnvironmentTableIsComplete(t *testing.T) {
	coretest.SkipUnderRace(t)
	table, err := os.ReadFile(filepath.Join(root, "docs", "environment.md"))
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, m := range tableVariable.FindAllStringSubmatch(string(table), -1) {
		require.False(t, documented[m[1]], "%s stands twice in docs/environment.md", m[1])
		documented[m[1]] = true
	}

	used := map[string]string{}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", ".venv", "build", "dist", "gen": // generators quote the macros of C
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".c", ".h", ".py":
		default:
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range codeVariable.FindAllString(string(source), -1) {
			used[strings.Trim(m, `"'`)] = name
		}
		return nil
	})
	require.NoError(t, err)

	for variable, name := range used {
		require.True(t, documented[variable], "%s is read in %s and missing from docs/environment.md", variable, name)
	}
	for variable := range documented {
		require.Contains(t, used, variable, "docs/environment.md describes a variable that nothing reads")
	}
}
