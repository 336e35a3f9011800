// Package shader is the language in which GPU kernels are written. A [Builder] collects what one dispatch needs: the program's key, its
// bindings and its parameters. A [Text] takes the statements of a program. A [Recorder] takes the dispatches. A [Language], such as [WGSL],
// prints the declarations.
//
// A kernel makes the same calls in the same order every time it runs. The program's text is written only if no program with the same [Key]
// was compiled before.
//
// The files, in the order in which a call uses them:
//   - recorder.go: the recorder, and the interface to the runtime behind it
//   - device.go, tuning.go: the properties of the GPU, and measured figures by which kernels choose an algorithm
//   - builder.go, access.go: operands and parameters; loads and stores of every dtype
//   - loop.go: index arithmetic for strided operands
//   - text.go, workgroup.go: the text of programs; language.go: the syntax of declarations
//   - cuda.go, cuda_translate.go, cuda_statements.go, cuda_tokens.go: programs in CUDA C++; cuda: what they begin with
//   - pieces.go: statements that several kernels use
//   - library: WGSL functions; a program gets only those that it mentions
package shader
