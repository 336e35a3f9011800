//go:build cgo && linux

package mpi_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/parallel/mpi"
)

// compile compiles a C file of testdata.
func compile(t *testing.T, out, source string, flags ...string) {
	t.Helper()
	args := append([]string{"-O1", "-Wall", "-Werror", "-o", out, filepath.Join("testdata", source)}, flags...)
	text, err := exec.Command("cc", args...).CombinedOutput()
	require.NoError(t, err, string(text))
}

// The flags that make a stand-in of each kind.
var fakes = map[string][]string{
	"mpich":     {`-DTEXT="MPICH Version:\t4.9\nMPICH Release date: today"`},
	"intel":     {`-DTEXT="Intel(R) MPI Library 2021.9 for Linux* OS"`},
	"openmpi":   {`-DTEXT="Open MPI v4.9, package: x"`, "-DOPENMPI"},
	"abi":       {`-DTEXT="MPICH Version:\t5.9"`, "-DSTANDARD=1"},
	"openabi":   {`-DTEXT="Open MPI v6.9, package: x"`, "-DSTANDARD=1", "-DOPENMPI"},
	"legacy":    {`-DTEXT="MPICH Version:\t5.9"`, "-DSTANDARD=-1"},
	"old":       {`-DTEXT="MPICH2 1.5"`, "-DVERSION=2"},
	"strange":   {`-DTEXT="Other MPI 1"`},
	"none":      {},
	"beginning": {`-DTEXT="MPICH Version:\t4.8"`, "-DINITIALIZED=1"},
}

// fake compiles a stand-in into a folder.
func fake(t *testing.T, kind, folder, name string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(folder, 0o777))
	path := filepath.Join(folder, name)
	compile(t, path, "fake.c", append([]string{"-shared", "-fPIC"}, fakes[kind]...)...)
	return path
}

// find returns the library that is found, and closes it.
func find(t *testing.T, prefix string) *mpi.Library {
	t.Helper()
	l, err := mpi.Find(prefix)
	require.NoError(t, err)
	l.GiveUp()
	return l
}

// clean clears the variables that Find reads.
func clean(t *testing.T) {
	for _, v := range []string{"PLAIT_MPI", "VIRTUAL_ENV", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "SLURM_STEP_NUM_TASKS"} {
		t.Setenv(v, "")
	}
}

func TestABIIsTheLibrarysNotItsNames(t *testing.T) {
	clean(t)
	folder := t.TempDir()
	for kind, want := range map[string]string{
		"mpich": "mpich", "intel": "mpich", "openmpi": "openmpi", "abi": "abi", "openabi": "abi", "legacy": "mpich",
	} {
		path := fake(t, kind, folder, "libmpi.so.12-"+kind)
		t.Setenv("PLAIT_MPI", path)
		l := find(t, "")
		require.Equal(t, want, l.ABI, kind)
		require.Equal(t, path, l.Path)
	}
	t.Setenv("PLAIT_MPI", filepath.Join(folder, "libmpi.so.12-openmpi"))
	require.Equal(t, "Open MPI v4.9", find(t, "").Version)
	t.Setenv("PLAIT_MPI", filepath.Join(folder, "libmpi.so.12-mpich"))
	require.Equal(t, "MPICH 4.9", find(t, "").Version)
}

func TestLibrariesThatCannotBeUsed(t *testing.T) {
	clean(t)
	folder := t.TempDir()
	for kind, want := range map[string]string{
		"old": "MPI 2.0, and 3.0 or newer is needed", "strange": "Other MPI 1", "none": "not a library of MPI",
	} {
		t.Setenv("PLAIT_MPI", fake(t, kind, folder, "lib"+kind+".so"))
		_, err := mpi.Find("")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, folder)
	}
	t.Setenv("PLAIT_MPI", filepath.Join(folder, "nothing.so"))
	_, err := mpi.Find("")
	require.ErrorContains(t, err, "nothing.so")
	t.Setenv("PLAIT_MPI", "lam")
	_, err = mpi.Find("")
	require.ErrorContains(t, err, `"lam", want the path of a library`)

	// What says that it is MPI, and lacks functions, is refused when it is to be used.
	t.Setenv("PLAIT_MPI", fake(t, "mpich", folder, "libpoor.so"))
	_, err = mpi.Join(mpi.Options{})
	require.ErrorContains(t, err, "it lacks MPI_")
	find(t, "").GiveUp()
}

// TestSearch runs part "search" with stand-ins for all that the system's loader finds.
func TestSearch(t *testing.T) {
	clean(t)
	system, prefix := t.TempDir(), t.TempDir()
	fake(t, "strange", system, "libmpi.so")
	fake(t, "mpich", system, "libmpi.so.12")
	fake(t, "openmpi", system, "libmpi.so.40")
	fake(t, "none", system, "libmpich.so.12")
	fake(t, "abi", system, "libmpi_abi.so.1")
	fake(t, "none", system, "libmpi_abi.so.0")
	fake(t, "legacy", filepath.Join(prefix, "lib"), "libmpi.so.12")
	fake(t, "abi", filepath.Join(prefix, "lib"), "libmpi_abi.so.1")
	alone(t, "search", "LD_LIBRARY_PATH="+system, "SYSTEM="+system, "PREFIX="+prefix)

	empty := t.TempDir()
	for _, name := range []string{"libmpi.so", "libmpi.so.12", "libmpi.so.40", "libmpich.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0"} {
		fake(t, "none", empty, name)
	}
	alone(t, "nothing", "LD_LIBRARY_PATH="+empty)
}

func nothing(t *testing.T) {
	for _, choice := range []string{"", "openmpi", "mpich", "abi"} {
		t.Setenv("PLAIT_MPI", choice)
		_, err := mpi.Join(mpi.Options{Prefix: t.TempDir()})
		require.ErrorContains(t, err, "no MPI library")
		require.ErrorContains(t, err, "pip install mpich")
		require.ErrorContains(t, err, "PLAIT_MPI")
	}
}

func search(t *testing.T) {
	system, prefix := os.Getenv("SYSTEM"), os.Getenv("PREFIX")
	inSystem := func(name string) string { return filepath.Join(system, name) }
	inPrefix := func(name string) string { return filepath.Join(prefix, "lib", name) }
	require.Equal(t, inSystem("libmpi.so.12"), find(t, "").Path, "what cannot be used is passed over")
	require.Equal(t, inPrefix("libmpi.so.12"), find(t, prefix).Path)
	t.Run("environment", func(t *testing.T) {
		t.Setenv("VIRTUAL_ENV", prefix)
		require.Equal(t, inPrefix("libmpi.so.12"), find(t, "").Path)
		require.Equal(t, inSystem("libmpi.so.12"), find(t, t.TempDir()).Path, "the prefix that is given counts")
	})
	t.Run("launcher", func(t *testing.T) {
		t.Setenv("OMPI_COMM_WORLD_SIZE", "4")
		require.Equal(t, inSystem("libmpi.so.40"), find(t, "").Path)
		require.Equal(t, inPrefix("libmpi.so.12"), find(t, prefix).Path, "the environment comes first")
		t.Setenv("OMPI_COMM_WORLD_SIZE", "")
		t.Setenv("PMI_RANK", "0")
		require.Equal(t, inSystem("libmpi.so.12"), find(t, "").Path)
	})
	t.Run("choice", func(t *testing.T) {
		t.Setenv("PLAIT_MPI", "abi")
		require.Equal(t, inPrefix("libmpi_abi.so.1"), find(t, prefix).Path)
		require.Equal(t, inSystem("libmpi_abi.so.1"), find(t, "").Path)
		t.Setenv("PLAIT_MPI", "openmpi")
		t.Setenv("PMI_RANK", "0")
		require.Equal(t, inSystem("libmpi.so.40"), find(t, prefix).Path)
	})
	t.Run("loaded", func(t *testing.T) {
		t.Setenv("PLAIT_MPI", inSystem("libmpi.so.40"))
		l, err := mpi.Find("")
		require.NoError(t, err)
		defer l.GiveUp()
		t.Setenv("PLAIT_MPI", "")
		require.Equal(t, inSystem("libmpi.so.40"), find(t, prefix).Path, "one that is loaded comes first")
		t.Setenv("PLAIT_MPI", "mpich")
		require.Equal(t, inSystem("libmpi.so.12"), find(t, "").Path, "unless another is asked for")

		t.Setenv("PLAIT_MPI", fake(t, "beginning", t.TempDir(), "libmpi_new.so"))
		began, err := mpi.Find("")
		require.NoError(t, err)
		defer began.GiveUp()
		t.Setenv("PLAIT_MPI", "")
		require.Equal(t, began.Path, find(t, prefix).Path, "one that is initialised comes before others")
	})
}

// TestHeaders compares our declarations with the headers of libraries, where they are installed.
func TestHeaders(t *testing.T) {
	headers := map[string][]string{
		"mpich.h":    {"/usr/include/*/mpich/mpi.h", "/usr/include/mpich-*/mpi.h", filepath.Join(wheel(), "include/mpi.h")},
		"openmpi.h":  {"/usr/lib/*/openmpi/include/mpi.h"},
		"standard.h": {filepath.Join(wheel(), "include/mpi_abi.h")},
	}
	for abi, patterns := range headers {
		t.Run(abi, func(t *testing.T) {
			found := 0
			for _, pattern := range patterns {
				list, err := filepath.Glob(pattern)
				require.NoError(t, err)
				for _, header := range list {
					found++
					program := filepath.Join(t.TempDir(), "check")
					flags := []string{"-I.", "-I" + filepath.Dir(header), `-DMPI="` + header + `"`, `-DABI="` + abi + `"`}
					if abi == "openmpi.h" {
						flags = append(flags, "-l:libmpi.so.40")
					}
					compile(t, program, "check.c", flags...)
					require.NoError(t, exec.Command(program).Run(), "handles differ from those of %s", header)
				}
			}
			if found == 0 {
				t.Skip("no header of this ABI is installed")
			}
		})
	}
}
