// Package pipeline trains one model whose layers are on several devices: a batch is cut into micro-batches, which pass through
// the stages one behind the other, so that the devices work at the same time.
//
// A [Schedule] is data: for each device the list of its actions. It is made by [New], or read by [Parse]; [Schedule.Validate]
// checks that it computes each gradient once and cannot deadlock, [Schedule.Simulate] predicts time, bubble and memory, and
// [Plot] draws it. An [Executor] carries it out: it knows tensors and where the stages' boundaries are, and hands each stage's
// forward pass back to its caller, so that stages may belong to any language. [Pipeline] is its caller for the modules of
// package nn.
package pipeline
