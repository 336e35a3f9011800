package tests_go

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest"
)

func TestWithoutCgoOneLineSaysWhatToDo(t *testing.T) {
	coretest.SkipUnderRace(t)
	build := exec.Command("go", "build", "./...")
	build.Dir = root
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "# "+module+"/core/internal/needcgo\n"+
		"core/internal/needcgo/nocgo.go:5:9: undefined: plait_needs_cgo__set_CGO_ENABLED_1_and_install_a_C_compiler\n",
		string(out), "an imported package all of whose files need cgo wants a nocgo.go like core/cpu/pool's")
}
