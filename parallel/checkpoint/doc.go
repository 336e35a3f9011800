// Package checkpoint saves what many ranks train and loads it into any other layout: another number of ranks, other shards, or
// one device.
//
// Each rank names the [Piece]s it holds: boxes of whole tensors, by plain names. [Save] makes a folder of them:
//
//	index.json                                  which tensor lies where, and the values that are no tensors
//	<save>-00000-of-00004.safetensors           the pieces that rank 0 wrote
//	<save>-00001-of-00004.safetensors           ...
//
// A piece that several ranks hold is written by one of them; all of them must hold the same values, but where [Piece].Any says
// that they need not. The pieces of a tensor must cover it exactly. One save at a time writes to a folder, whose ranks may be
// threads or processes: its rank 0 holds a lock, which counts for nothing once its process has died. The index is renamed into
// place when every file is on the disk: a rank that fails or is killed before that leaves the folder's earlier checkpoint as it
// was, and the next save removes what it left.
//
// [Load] takes from the files what lies in the pieces that the ranks want now, after it has checked all of it: the index
// holds the size of every file and a checksum of every piece, and ends with one of its own. [Gather] and [Scatter] move whole tensors between one rank
// and the pieces of all, without files.
//
// [Training] is a module with its optimiser, schedule and random numbers: it names their pieces, and gives back what was loaded,
// in any way of training.
package checkpoint

import "github.com/plait-ml/plait/core"

// format names this package in its errors.
const format = "checkpoint"

func errorf(kind core.Kind, text string, args ...any) error {
	return core.Errorf(kind, format, text, args...)
}
