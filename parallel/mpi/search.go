//go:build cgo && linux

package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// variable chooses the library: a path, or "openmpi", "mpich" or "abi".
const variable = "PLAIT_MPI"

// The names of libraries, in the order in which mpi4py tries them, so that both use the same one.
var (
	names   = []string{"libmpi.so", "libmpi.so.12", "libmpi.so.40", "libmpich.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0"}
	namesOf = map[family][]string{
		mpich: {"libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi.so"}, openMPI: {"libmpi.so.40", "libmpi.so"},
	}
	namesOfABI = map[string][]string{
		"openmpi": {"libmpi.so.40", "libmpi.so"}, "mpich": {"libmpi.so.12", "libmpich.so.12", "libmpi.so"},
		"abi": {"libmpi_abi.so.1", "libmpi_abi.so.0"},
	}
)

// A candidate is a library to try.
type candidate struct {
	name string
	fits func(*Library) bool // nil for all
}

// Find finds the MPI library to use, and opens it. The variable PLAIT_MPI may give its path, or its ABI: "openmpi", "mpich" or "abi". Else
// it is the first of: one that the process has loaded, for there must not be two; one in the folder lib of the Python environment; one that
// belongs to the launcher that started the process; one that the system's loader finds. Prefix is the root of the Python environment
// (sys.prefix); if it is empty, VIRTUAL_ENV names it.
func Find(prefix string) (*Library, error) {
	choice := os.Getenv(variable)
	if strings.ContainsRune(choice, filepath.Separator) {
		l, err := open(choice, false)
		if err != nil {
			return nil, fmt.Errorf("mpi: %s names a library that cannot be used: %w", variable, err)
		}
		return l, nil
	}
	if choice != "" && namesOfABI[choice] == nil {
		return nil, fmt.Errorf(`mpi: %s is %q, want the path of a library, "openmpi", "mpich" or "abi"`, variable, choice)
	}
	fits := func(l *Library) bool { return choice == "" || l.ABI == choice }

	var reasons []string
	reject := func(reason string) {
		if len(reasons) < 20 {
			reasons = append(reasons, reason)
		}
	}
	if l := findLoaded(fits); l != nil {
		return l, nil
	}
	for _, c := range candidates(prefix, choice) {
		l, err := open(c.name, false)
		switch {
		case err == nil && fits(l) && (c.fits == nil || c.fits(l)):
			return l, nil
		case err == nil:
			reject(fmt.Sprintf("%s has the ABI %s", l.Path, l.ABI))
			l.close()
		default:
			reject(err.Error())
		}
	}
	return nil, missing(choice, reasons)
}

// findLoaded returns a library that the process has loaded, the one that is initialised if there are several, or nil.
func findLoaded(fits func(*Library) bool) *Library {
	var found *Library
	for _, path := range loadedPaths() {
		l, err := open(path, true)
		switch {
		case err != nil:
		case fits(l) && (found == nil || l.initialized && !found.initialized):
			found = l
		default:
			l.close()
		}
	}
	return found
}

// candidates lists the libraries to try, the best first.
func candidates(prefix, choice string) []candidate {
	list := names
	if choice != "" {
		list = namesOfABI[choice]
	}
	if prefix == "" {
		prefix = os.Getenv("VIRTUAL_ENV")
	}
	var out []candidate
	if prefix != "" {
		for _, name := range list {
			path := filepath.Join(prefix, "lib", name)
			if _, err := os.Stat(path); err == nil {
				out = append(out, candidate{name: path})
			}
		}
	}
	if f := launched().family; f != unknown && choice == "" {
		for _, name := range namesOf[f] {
			out = append(out, candidate{name: name, fits: func(l *Library) bool { return l.family == f }})
		}
	}
	for _, name := range list {
		out = append(out, candidate{name: name})
	}
	return out
}

// missing returns the error for no library.
func missing(choice string, reasons []string) error {
	what := "no MPI library"
	if choice != "" {
		what = "no MPI library with the ABI " + choice
	}
	return fmt.Errorf("mpi: %s was found: install one with `pip install mpich`, or Debian's openmpi-bin or mpich, or name it in %s (tried: %s)",
		what, variable, strings.Join(reasons, "; "))
}
