//go:build cgo && linux

package mpi_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/parallel/mpi"
)

// role is the variable that names the part of a test that runs in processes of its own.
const role = "TEST_MPI_ROLE"

// patience is how long processes may run. It only guards against hangs.
const patience = 60 * time.Second

// parts are run by [alone] or by [world].
var parts = map[string]func(t *testing.T){
	"search": search, "nothing": nothing, "messages": messages, "alone": onlyOne, "wrong": wrongLauncher, "killed": killed,
	"foreign": foreign, "single": singleThread, "finalized": finalized, "late": late, "panics": panics, "closes": closes, "bench": bench,
}

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv(role) != "" {
		mpi.Exit(code)
	}
	os.Exit(code)
}

// TestPart is the part of a test that runs in a process of its own. It leaves a file behind when it has passed.
func TestPart(t *testing.T) {
	name := os.Getenv(role)
	if name == "" {
		t.Skip("other tests run it")
	}
	require.NotNil(t, parts[name], name)
	parts[name](t)
	if !t.Failed() {
		file, err := os.CreateTemp(os.Getenv("PASSED"), "passed-*")
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
}

// alone runs a part in a process without a launcher.
func alone(t *testing.T, part string, environment ...string) {
	t.Helper()
	out, passed := run(t, nil, part, environment)
	require.Equal(t, 1, passed, out)
}

// run runs a part below a launcher's command and returns what it printed, and how many processes have passed.
func run(t *testing.T, launcher []string, part string, environment []string) (string, int) {
	t.Helper()
	folder := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args := append(append([]string{}, launcher...), os.Args[0], "-test.run=^TestPart$", "-test.timeout="+patience.String())
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // upon which launchers end what they started
	c.WaitDelay = 5 * time.Second
	c.Env = append(append(os.Environ(), environment...), role+"="+part, "PASSED="+folder)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	files, globErr := filepath.Glob(filepath.Join(folder, "passed-*"))
	require.NoError(t, globErr)
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String(), len(files)
}

// A launcher starts processes that use a library.
type launcher struct {
	name            string
	mpiexec         string
	flags           []string // for all
	survive         []string // that let the others go on when a process dies
	environment     []string
	most            int    // number of processes
	library         string // for dlopen
	multiple        int    // MPI_THREAD_MULTIPLE
	serialized      int    // MPI_THREAD_SERIALIZED
	everybody, self int32  // Fortran's numbers of communicators
}

// wheel returns the Python environment that has the package mpich, or a folder that is not there.
func wheel() string {
	for _, v := range []string{"PLAIT_TEST_MPICH", "VIRTUAL_ENV"} {
		prefix := os.Getenv(v)
		if _, err := os.Stat(filepath.Join(prefix, "lib", "libmpi_abi.so.1")); prefix != "" && err == nil {
			return prefix
		}
	}
	return "/nonexistent"
}

func launchers() []launcher {
	root := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	abi := filepath.Join(wheel(), "lib", "libmpi_abi.so.1")
	return []launcher{
		{
			name: "openmpi", mpiexec: "mpiexec.openmpi", flags: []string{"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"},
			survive: []string{"--enable-recovery"}, environment: append(root, "PLAIT_MPI=openmpi"), most: 3, library: "libmpi.so.40",
			multiple: 3, serialized: 2, everybody: 0, self: 1,
		},
		{
			name: "mpich", mpiexec: "mpiexec.mpich", survive: []string{"-disable-auto-cleanup"}, environment: []string{"PLAIT_MPI=mpich"},
			most: 2, library: "libmpich.so.12", multiple: 3, serialized: 2, everybody: 0x44000000, self: 0x44000001,
		},
		{
			name: "abi", mpiexec: filepath.Join(wheel(), "bin", "mpiexec"), survive: []string{"-disable-auto-cleanup"},
			environment: []string{"PLAIT_MPI=" + abi}, most: 2, library: abi, multiple: 4096, serialized: 2048, everybody: 0x101, self: 0x102,
		},
	}
}

// each runs a test with each launcher that is installed.
func each(t *testing.T, f func(t *testing.T, l launcher)) {
	for _, l := range launchers() {
		t.Run(l.name, func(t *testing.T) {
			l.skip(t)
			f(t, l)
		})
	}
}

// skip skips a test where the library is not installed.
func (l launcher) skip(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(l.mpiexec); err != nil {
		t.Skipf("%s is not installed (Debian's openmpi-bin or mpich; for abi, PLAIT_TEST_MPICH is a Python environment with mpich): %v", l.name, err)
	}
}

// command returns the start of a command that runs a number of processes.
func (l launcher) command(processes int, flags ...string) []string {
	return append(append(append([]string{l.mpiexec}, l.flags...), flags...), "-n", strconv.Itoa(processes))
}

// survivors runs a part in processes of which some must pass, whatever becomes of the others. A shell around each process stays until then:
// launchers end all processes for one that ends before its time, and take no notice of what a shell has started.
func (l launcher) survivors(t *testing.T, processes, wanted int, part string) {
	t.Helper()
	const script = `"$@"; for i in $(seq 600); do [ $(ls "$PASSED" | wc -l) -ge $WANTED ] && break; sleep 0.05; done`
	sign := filepath.Join(t.TempDir(), "sign")
	command := append(l.command(processes, l.survive...), "sh", "-c", script, "sh")
	out, passed := run(t, command, part, append(l.environment, "SIGN="+sign, "WANTED="+strconv.Itoa(wanted)))
	require.Equal(t, wanted, passed, out)
}

// world runs a part in processes, which must all pass.
func (l launcher) world(t *testing.T, processes int, part string, environment ...string) {
	t.Helper()
	out, passed := run(t, l.command(processes), part, append(l.environment, environment...))
	require.Equal(t, processes, passed, out)
}

// join joins and fails the test for an error.
func join(t *testing.T, o mpi.Options) *mpi.Transport {
	t.Helper()
	tr, err := mpi.Join(o)
	require.NoError(t, err)
	return tr
}

// await returns what comes out of a channel, and fails the test if nothing does.
func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience / 2):
		require.FailNow(t, "nothing comes")
		panic("unreachable")
	}
}
