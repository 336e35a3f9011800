// Package shader is what kernels of GPUs are written with. A [Builder] declares what a program binds and its parameters and names what it
// specialises on, a [Text] takes the program's statements, and a [Recorder] takes the dispatches. A [Language], such as [WGSL], prints what
// programs declare. A kernel says the same things in the same order on every call; the text is written only when no program of the same
// [Key] was compiled before.
//
// In the order of a call:
//   - recorder.go: what kernels record to, and the interface to the runtime behind it
//   - device.go, tuning.go: what they know of the GPU, and the figures by which they choose
//   - builder.go, access.go: operands and parameters; loads and stores of every dtype
//   - loop.go: indices of operands with any strides
//   - text.go, workgroup.go: programs as they are written; language.go: what is printed for them
//   - pieces.go: pieces of text that kernels share
//   - library: functions in WGSL, of which a program gets those that it mentions
package shader
