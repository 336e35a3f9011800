package checkpoint

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If several processes save to one folder, one saves at a time. The others get an error that names the running save.
func TestProcessesThatSaveToOneFolder(t *testing.T) {
	const child = "PLAIT_TEST_CHECKPOINT_PAIR"
	names := []string{"a", "b"}
	state := func(v int) State {
		s := State{Values: map[string]json.RawMessage{"by": json.RawMessage(fmt.Sprint(v))}}
		for _, n := range names {
			s.Pieces = append(s.Pieces, Piece{Name: n, Tensor: op.Full([]int{1000}, core.IntNum(int64(v)), op.TensorOptions{})})
		}
		return s
	}
	if dir := os.Getenv(child); dir != "" {
		fmt.Println("ready")
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			var number int
			_, err = fmt.Sscan(line, &number)
			require.NoError(t, err)
			fmt.Println("result:", Save(dir, state(number), nil))
		}
	}
	dir := t.TempDir()
	type process struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	var pair [2]process
	for i := range pair {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"="+dir)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		pair[i] = process{cmd, in, bufio.NewReader(out)}
		_, err = pair[i].out.ReadString('\n')
		require.NoError(t, err)
	}
	rounds, refused := 100, 0
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		for i, p := range pair {
			_, err := fmt.Fprintln(p.in, 2*round+i)
			require.NoError(t, err)
		}
		saved := map[string]bool{}
		for i, p := range pair {
			line, err := p.out.ReadString('\n')
			require.NoError(t, err)
			if strings.TrimSpace(line) == "result: <nil>" {
				saved[fmt.Sprint(2*round+i)] = true
				continue
			}
			refused++
			assert.Contains(t, line, "is being written to by ")
		}
		require.NotEmpty(t, saved)
		got := state(-1)
		values, err := Load(dir, got, nil)
		require.NoError(t, err)
		assert.Contains(t, saved, string(values["by"]))
		var by int
		require.NoError(t, json.Unmarshal(values["by"], &by))
		require.NoError(t, equalPieces(got.Pieces, state(by).Pieces))
	}
	t.Logf("%d of %d saves were refused", refused, 2*rounds)
}
