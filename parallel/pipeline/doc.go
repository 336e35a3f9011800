// Package pipeline implements pipeline parallelism. The layers of one model are divided into stages on several devices. Each
// batch is divided into micro-batches, so that the stages work on different micro-batches at the same time.
//
// A [Schedule] lists the actions of each device in order. [New] builds a schedule and [Parse] reads one. [Schedule.Validate]
// checks that each gradient is computed once and that the schedule cannot deadlock. [Schedule.Simulate] predicts time, bubble and
// memory, and [Plot] draws the result.
//
// An [Executor] runs a schedule. It moves activations and gradients between stages, and asks its caller to run the forward pass
// of each stage, so the stages may be written in any language. [Pipeline] is the caller for modules of package nn.
package pipeline
