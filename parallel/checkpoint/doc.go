// Package checkpoint saves the training state of many ranks and loads it into any other layout: another world size, other shards, or one
// device.
//
// Each rank lists its [Piece]s: shards of named tensors, or distributed tensors, of which each rank's part is one. [Save] writes a folder:
//
//	index.json                                  the file of every piece, and values that are no tensors
//	<save>-00000-of-00004.safetensors           the pieces that rank 0 wrote
//	<save>-00001-of-00004.safetensors           ...
//
// If several ranks hold the same piece, one of them writes it. Their values must be equal, unless [Piece].Any allows differences. The pieces
// of a tensor must cover it exactly. The ranks of a save may be threads or processes. Only one save at a time may write to a folder: its
// rank 0 holds a lock, which becomes invalid when its process dies. The index is renamed into place after every file is on disk. If a rank
// fails or is killed before that, the folder keeps its earlier checkpoint, and the next save removes the leftover files.
//
// [Load] reads only what the ranks' pieces need, after it has verified all of it: the index holds the size of every file, a checksum of
// every piece, and a checksum of itself. [Gather] and [Scatter] move whole tensors between one rank and the pieces of all ranks, without
// files.
//
// [Training] bundles a module with its optimiser, schedule and random state. It lists their pieces for a save and restores them on a load,
// whatever the parallelism.
package checkpoint

import "github.com/plait-ml/plait/core"

// format is the operation's name in errors of this package.
const format = "checkpoint"

func errorf(kind core.Kind, text string, args ...any) error {
	return core.Errorf(kind, format, text, args...)
}
