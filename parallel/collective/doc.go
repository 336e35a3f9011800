// Package collective lets ranks act together: all-reduce and its family, over the tensors of ranks that are threads of this
// process.
//
// The path of one collective: every rank of a [Group] calls the same method. The call lends the rank's tensors to the group
// ([core.Borrow]), so that whatever is launched on them later waits, and returns a [Work] at once. The backend brings the
// calls of all ranks together by their sequence number and checks that they agree; the rank that comes last makes the plan
// ([steps]) and launches it on the communication streams of the ranks, behind everything that was launched on any of the
// tensors before. Nobody waits but for errors.
//
// Sums run in the order of the ranks and are divided once at the end: the bits depend neither on timing nor on how the work
// is cut. A rank whose input is read by its peers gets it back when all of them are done. A rank that disagrees, dies or
// never comes ends everybody's work with an error that names it.
//
// A [Group.Channel] numbers some of a group's collectives apart from the rest. A rank that cannot go on with those revokes the channel
// ([Group.Revoke]): they fail on every rank, and the group goes on.
package collective

import (
	_ "github.com/plait-ml/plait/core/cpu" // ranks without a device of their own use cpu:0
)
