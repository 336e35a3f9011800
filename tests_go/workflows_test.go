package tests_go

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// workflow is what this test reads of a workflow's file.
type workflow struct {
	On          any
	Permissions map[string]string
	Jobs        map[string]struct {
		Strategy struct {
			Matrix map[string][]string
		}
		Steps []struct {
			Uses, Run, Shell string
			With             map[string]any
		}
	}
}

// targets returns the names that the Makefile has a rule for.
func targets(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):(?:[^=]|$)`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, m[1])
	}
	return names
}

// commands returns a step's command, once for every value of the matrix that it names.
func commands(run string, matrix map[string][]string) []string {
	for name, values := range matrix {
		if variable := "${{ matrix." + name + " }}"; strings.Contains(run, variable) {
			var all []string
			for _, v := range values {
				all = append(all, commands(strings.ReplaceAll(run, variable, v), matrix)...)
			}
			return all
		}
	}
	return []string{run}
}

func TestWorkflowsRunTargetsOfTheMakefileAlone(t *testing.T) {
	known := targets(t)
	require.Contains(t, known, "test-package")
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	run := map[string]bool{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		var w workflow
		require.NoError(t, yaml.Unmarshal(source, &w), file)
		require.NotNil(t, w.On, file)
		require.Equal(t, map[string]string{"contents": "read"}, w.Permissions, "%s: a job asks for more where it needs it", file)
		require.NotEmpty(t, w.Jobs, file)
		for name, job := range w.Jobs {
			require.NotEmpty(t, job.Steps, "%s: %s", file, name)
			for _, step := range job.Steps {
				if step.Run == "" {
					require.Regexp(t, `^actions/[a-z-]+@[0-9a-f]{40}$`, step.Uses, "%s: an action is pinned by its commit", file)
					continue
				}
				require.Empty(t, step.Uses+step.Shell, file)
				for _, command := range commands(step.Run, job.Strategy.Matrix) {
					require.Regexp(t, `^make [a-z-]+$`, command, "%s: what a workflow does, a developer can do", file)
					target := strings.TrimPrefix(command, "make ")
					require.Contains(t, known, target, file)
					run[target] = true
				}
			}
		}
	}
	require.Equal(t, []string{"lint", "publish", "release", "release-check", "test", "test-docs", "test-package"}, slices.Sorted(maps.Keys(run)))
}
