// Package mesh arranges the ranks of a group along named axes, such as 2 replicas of 4 shards each: a [Mesh]. Along each
// axis a rank has a group, of the ranks whose other coordinates are its own; so ways of splitting a model or a batch
// combine, each on an axis of its own.
package mesh
