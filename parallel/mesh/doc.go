// Package mesh arranges the ranks of a group along named axes, such as 2 replicas with 4 shards each, as a [Mesh]. Along each axis a rank
// has a group of the ranks that share its other coordinates. Kinds of parallelism combine by using one axis each.
package mesh
