//go:build cgo && linux

package mpi_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/parallel/mpi"
)

// TestKilled kills one process.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, l launcher) { l.survivors(t, l.most, l.most-1, "killed") })
}

// appears waits for a file.
func appears(t *testing.T, path string) {
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, patience/2, 5*time.Millisecond)
}

func killed(t *testing.T) {
	tr := join(t, mpi.Options{Farewell: patience})
	victim := tr.Processes() - 1
	heard := make(chan int, 10)
	tr.Listen(func(from int, _ []byte) { heard <- from })
	for p := range tr.Processes() {
		tr.Post(p, nil)
	}
	for range tr.Processes() {
		await(t, heard)
	}
	if tr.Process() == victim {
		// The others' operations are pending when it dies.
		into := make([]byte, 1)
		got := make(chan error, 1)
		for p := range victim {
			tr.Recv(p, 1, into, func(err error) { got <- err })
			require.NoError(t, await(t, got))
		}
		require.NoError(t, os.WriteFile(os.Getenv("SIGN"), nil, 0o666))
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	received, sent, small := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	tr.Recv(victim, 2, make([]byte, 100), func(err error) { received <- err })
	tr.Send(victim, 3, make([]byte, 8<<20), func(err error) { sent <- err })
	tr.Send(victim, 1, make([]byte, 1), func(err error) { small <- err })
	require.NoError(t, await(t, small))
	appears(t, os.Getenv("SIGN"))
	time.Sleep(50 * time.Millisecond)

	dead := errors.New("no heartbeat")
	tr.Lose(victim, dead)
	err := await(t, received)
	require.ErrorIs(t, err, dead)
	var held *mpi.HeldError
	require.False(t, errors.As(err, &held), "the receive gives its memory back")
	require.ErrorIs(t, await(t, sent), dead)
	tr.Recv(victim, 2, make([]byte, 100), func(err error) { received <- err })
	require.Equal(t, dead, await(t, received))
	tr.Post(victim, []byte("nobody hears it"))

	// The others go on with each other.
	for p := range victim {
		if p != tr.Process() {
			tr.Post(p, make([]byte, 10_000))
			require.Equal(t, p, await(t, heard))
		}
	}
	begin := time.Now()
	require.NoError(t, tr.Close())
	require.Less(t, time.Since(begin), patience/2, "Close does not wait for the dead")
}

// TestLate closes the transport of one process while another does not come to it.
func TestLate(t *testing.T) {
	each(t, func(t *testing.T, l launcher) { l.survivors(t, 2, 2, "late") })
}

func late(t *testing.T) {
	tr := join(t, mpi.Options{Farewell: 50 * time.Millisecond})
	tr.Listen(func(int, []byte) {})
	sign := os.Getenv("SIGN")
	if tr.Process() == 0 {
		// The big message is not received either, so its memory stays with MPI.
		sent := make(chan error, 1)
		tr.Send(1, 1, make([]byte, 8<<20), func(err error) { sent <- err })
		require.ErrorContains(t, tr.Close(), "did not close their transports within 50ms")
		var held *mpi.HeldError
		require.ErrorAs(t, await(t, sent), &held)
		require.ErrorContains(t, held, "closed")
		require.NoError(t, os.WriteFile(sign, nil, 0o666))
		appears(t, sign+"-2")
		return
	}
	lost := make(chan error, 1)
	tr.Lost(func(_ int, err error) { lost <- err })
	appears(t, sign)
	require.ErrorContains(t, await(t, lost), "process 0 has closed its transport")
	require.NoError(t, tr.Close())
	require.NoError(t, os.WriteFile(sign+"-2", nil, 0o666))
}

func TestWrongLauncher(t *testing.T) {
	list := launchers()
	openmpi, mpich := list[0], list[1]
	for _, pair := range [][2]launcher{{openmpi, mpich}, {mpich, openmpi}} {
		t.Run(pair[0].name+"'s with "+pair[1].name, func(t *testing.T) {
			pair[0].skip(t)
			pair[1].skip(t)
			environment := append(append(pair[0].environment, pair[1].environment...), "WANT=PLAIT_MPI="+pair[0].name)
			out, passed := run(t, pair[0].command(2), "wrong", environment)
			require.Equal(t, 2, passed, out)
		})
	}
}

func wrongLauncher(t *testing.T) {
	_, err := mpi.Join(mpi.Options{})
	require.ErrorContains(t, err, "started 2 processes")
	require.ErrorContains(t, err, "belongs to the library")
	require.ErrorContains(t, err, os.Getenv("WANT"))
}

// preload returns a command that runs processes in which somebody else initialises MPI.
func (l launcher) preload(t *testing.T, processes, level int, environment ...string) []string {
	t.Helper()
	foreign := filepath.Join(t.TempDir(), "foreign.so")
	compile(t, foreign, "foreign.c", "-shared", "-fPIC", fmt.Sprintf(`-DLIBRARY="%s"`, l.library), fmt.Sprintf("-DLEVEL=%d", level))
	command := append(l.command(processes), "env", "LD_PRELOAD="+foreign, "FOREIGN=1")
	command = append(command, environment...)
	return append(command, "WORLD="+strconv.Itoa(int(l.everybody)), "SELF="+strconv.Itoa(int(l.self)))
}

// TestInitializedBySomebodyElse uses MPI beside another part of the program, which finalises it.
func TestInitializedBySomebodyElse(t *testing.T) {
	each(t, func(t *testing.T, l launcher) {
		out, passed := run(t, l.preload(t, 2, l.multiple), "foreign", append(l.environment, "PLAIT_MPI="))
		require.Equal(t, 2, passed, out)
		require.NotContains(t, out, "exit status")
	})
}

// TestListeners has functions called that do what they should not: panic, and close the transport.
func TestListeners(t *testing.T) {
	each(t, func(t *testing.T, l launcher) {
		alone(t, "panics", l.environment...)
		alone(t, "closes", l.environment...)
	})
}

func closes(t *testing.T) {
	tr := join(t, mpi.Options{})
	closed, done := make(chan error, 1), make(chan error, 1)
	tr.Listen(func(int, []byte) { closed <- tr.Close() })
	tr.Recv(0, 1, make([]byte, 1), func(err error) { done <- err })
	tr.Post(0, nil)
	require.NoError(t, await(t, closed))
	require.ErrorContains(t, await(t, done), "closed")
	require.NoError(t, tr.Close())
}

func panics(t *testing.T) {
	tr := join(t, mpi.Options{})
	tr.Listen(func(int, []byte) { panic("what a message") })
	done, heard := make(chan error, 1), make(chan error, 1)
	tr.Recv(0, 1, make([]byte, 1), func(err error) { done <- err })
	tr.Post(0, nil)
	require.ErrorContains(t, await(t, done), "panicked: what a message")
	tr.Send(0, 1, nil, func(err error) { heard <- err })
	require.ErrorContains(t, await(t, heard), "panicked: what a message")
	require.NoError(t, tr.Close())
}

func foreign(t *testing.T) {
	number := func(name string) *int32 {
		n, err := strconv.ParseInt(os.Getenv(name), 10, 32)
		require.NoError(t, err)
		number := int32(n)
		return &number
	}
	all, world := join(t, mpi.Options{}), join(t, mpi.Options{Communicator: number("WORLD")})
	self := join(t, mpi.Options{Communicator: number("SELF")})
	require.Equal(t, []int{2, 2, 1}, []int{all.Processes(), world.Processes(), self.Processes()})
	other := 1 - all.Process()
	// Messages of one do not reach the other.
	a, b := make([]byte, 1), make([]byte, 1)
	done := make(chan error, 4)
	all.Recv(other, 1, a, func(err error) { done <- err })
	world.Send(other, 1, []byte{2}, func(err error) { done <- err })
	all.Send(other, 1, []byte{1}, func(err error) { done <- err })
	world.Recv(other, 1, b, func(err error) { done <- err })
	for range 4 {
		require.NoError(t, await(t, done))
	}
	require.Equal(t, []byte{1, 2}, []byte{a[0], b[0]})
	require.NoError(t, all.Close())
	require.NoError(t, world.Close())
	require.NoError(t, self.Close())
	again := join(t, mpi.Options{})
	require.Equal(t, 2, again.Processes(), "MPI is not finalised")
	require.NoError(t, again.Close())
}

// TestTooFewThreads joins where MPI was initialised for one thread at a time, which cannot be used beside others.
func TestTooFewThreads(t *testing.T) {
	each(t, func(t *testing.T, l launcher) {
		out, passed := run(t, l.preload(t, 1, l.serialized), "single", append(l.environment, "PLAIT_MPI="))
		require.Equal(t, 1, passed, out)
	})
}

func singleThread(t *testing.T) {
	_, err := mpi.Join(mpi.Options{})
	require.ErrorContains(t, err, "MPI_THREAD_MULTIPLE")
}

// TestFinalizedBySomebodyElse ends MPI below a transport with pending operations.
func TestFinalizedBySomebodyElse(t *testing.T) {
	each(t, func(t *testing.T, l launcher) {
		sign := filepath.Join(t.TempDir(), "sign")
		command := l.preload(t, 2, l.multiple, "FOREIGN_FINALIZE=50", "FOREIGN_SIGN="+sign)
		out, passed := run(t, command, "finalized", append(l.environment, "PLAIT_MPI="))
		require.Equal(t, 2, passed, out)
	})
}

func finalized(t *testing.T) {
	tr := join(t, mpi.Options{})
	other := 1 - tr.Process()
	heard, lost := make(chan int, 1), make(chan error, 1)
	tr.Listen(func(from int, _ []byte) { heard <- from })
	tr.Lost(func(_ int, err error) { lost <- err })
	tr.Post(other, nil)
	await(t, heard)
	done := make(chan error, 1)
	tr.Recv(other, 1, make([]byte, 100), func(err error) { done <- err })
	require.NoError(t, os.WriteFile(os.Getenv("FOREIGN_SIGN"), nil, 0o666))
	require.ErrorContains(t, await(t, done), "another part of the program has finalised MPI")
	require.ErrorContains(t, await(t, lost), "another part of the program has finalised MPI")
	tr.Send(other, 1, nil, func(err error) { done <- err })
	require.ErrorContains(t, await(t, done), "another part of the program has finalised MPI")
	require.NoError(t, tr.Close())
}
