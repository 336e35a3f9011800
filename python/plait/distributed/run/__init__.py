"""Starts a script on several processes, the ranks, on one machine or several.

    python -m plait.distributed.run --nproc-per-node 4 train.py --lr 0.1

The flags are those of PyTorch's torchrun, as far as they have a meaning: MPI's `mpiexec` starts the processes, so one
command on one machine starts them all. Each process gets RANK, LOCAL_RANK, WORLD_SIZE and the other variables that
torchrun sets, and `init_process_group` joins them. `--dry-run` shows the command without starting it.

`_arguments` reads the flags, `_nodes` looks which nodes are there, `_mpiexec` writes the command, and `_job` runs it
and ends what it has started. `_child` is between `mpiexec` and a process whose output goes to files (`_logs`), and
`_worker` is the first code of each process.
"""
