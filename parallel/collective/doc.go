// Package collective implements collective communication: all-reduce, all-gather, reduce-scatter and so on, for ranks that are threads of
// one process or of several.
//
// Every rank of a [Group] calls the same method. The call lends the rank's tensors to the collective ([core.Borrow]), so that later work on
// them waits, and returns a [Work] at once. The [rendezvous] of the group matches the calls of all ranks by sequence number and checks that
// they agree. The last rank to arrive makes the plan ([steps]) and launches it on the ranks' communication streams, after everything
// launched on the tensors before. Between processes, which a [Transport] connects, each carries out its part of the plan ([wireJob]),
// on the devices themselves where these reach each other ([sharing]). Callers block only to learn of errors.
//
// Sums run in rank order and are divided once at the end, so the bits depend neither on timing nor on how the work is split. A rank may
// overwrite an input only after all peers have read it. If a rank disagrees, fails or never arrives, every rank gets an error that names
// it. If a process is lost while data moves, a rank that has all of it already learns so in its next collective.
//
// A [Group.Channel] is a separate sequence of collectives. A rank that cannot continue with them revokes the channel ([Group.Revoke]): its
// collectives fail on every rank, and the group stays usable.
package collective

import (
	_ "github.com/plait-ml/plait/core/cpu" // the default device of a rank is cpu:0
)
