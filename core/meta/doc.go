// Package meta is the device "meta", whose tensors have shapes, dtypes and places in graphs, but no values and no memory.
// Importing it registers the device.
//
// What is launched on it is not run but written down: for every tensor, the calls that its values follow from, random
// draws with the counters they took. [Materialize] runs them on another device and so makes the values that the tensor
// would have, had it been made there; [Part] makes those of a part alone, without the rest where each element
// follows from its own place. So a model that no device has room for is constructed here, and each of many ranks makes the
// part of it that it holds.
//
// Random numbers come from the generator of the rank's own device, which moves as it would if the tensors were made there.
package meta
