// Package parallel lays one model over the ranks of a mesh in several ways at once: stages of a pipeline, copies, shards and divided layers.
//
// [Parallelize] composes the packages below it, each of which has one way: pipeline, fsdp and tensor/layers. Training equals that of one device
// on the whole batch.
package parallel
