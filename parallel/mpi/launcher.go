//go:build cgo && linux

package mpi

import (
	"fmt"
	"os"
	"strconv"
)

// A family is a kind of libraries that start with the same launchers.
type family int

const (
	unknown family = iota
	mpich
	openMPI
)

// advice says how programs are started with libraries of a family.
func (f family) advice() string {
	if f == openMPI {
		return "Open MPI's mpiexec (Debian: mpiexec.openmpi)"
	}
	return "MPICH's mpiexec (pip install mpich: bin/mpiexec of the environment; Debian: mpiexec.mpich)"
}

// A launch is what the environment says of the launcher that started this process.
type launch struct {
	family   family
	size     int    // number of processes, 0 if it is not known
	variable string // that says so
}

// launched returns what the environment says.
func launched() launch {
	for _, l := range []launch{
		{family: openMPI, variable: "OMPI_COMM_WORLD_SIZE"}, {family: mpich, variable: "PMI_SIZE"},
		{family: unknown, variable: "SLURM_STEP_NUM_TASKS"}, // which Slurm sets whatever the library
	} {
		if n, err := strconv.Atoi(os.Getenv(l.variable)); err == nil && n > 0 {
			l.size = n
			return l
		}
	}
	if os.Getenv("PMI_RANK") != "" {
		return launch{family: mpich, variable: "PMI_RANK"}
	}
	return launch{}
}

// hopeless reports whether the library certainly does not understand the launcher, so that it need not be tried. Open MPI, which would try,
// ends the process at times when several of its worlds begin together. It understands Slurm, and what speaks PMIx.
func (l launch) hopeless(library *Library) bool {
	return library.family == openMPI && l.family == mpich && os.Getenv("PMIX_NAMESPACE") == "" && os.Getenv("SLURM_JOB_ID") == ""
}

// strange reports whether the launcher belongs to another family than the library.
func (l launch) strange(library *Library) bool {
	return l.family != unknown && l.family != library.family
}

// check returns an error if the launcher started several processes and the library sees this one alone, since the library does not
// understand the launcher.
func (l launch) check(library *Library, processes int) error {
	if processes != 1 || l.size <= 1 {
		return nil
	}
	text := fmt.Sprintf("mpi: %s started %d processes, and %v sees only this one", l.name(), l.size, library)
	switch l.family {
	case unknown:
		return fmt.Errorf("%s: start it with srun --mpi=pmix or --mpi=pmi2, whichever the library supports", text)
	case library.family:
		return fmt.Errorf("%s: start it with the mpiexec that belongs to this library", text)
	}
	other := "openmpi"
	if l.family == mpich {
		other = "mpich"
	}
	return fmt.Errorf("%s: start it with %s, which belongs to the library, or set PLAIT_MPI=%s to use the launcher's", text,
		library.family.advice(), other)
}

func (l launch) name() string {
	name := "Slurm"
	switch l.family {
	case openMPI:
		name = "Open MPI's launcher"
	case mpich:
		name = "MPICH's launcher"
	}
	return name + " (" + l.variable + ")"
}
