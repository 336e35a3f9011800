package bind

// Go reads the files of a package for these lines in the order of their names, and fails where one of them is gone. So they stand
// behind gen_*.go, of which the second of them removes the families that are no more. The first writes what the others are compiled with.

//go:generate go run ../../internal/gen/engine ../..
//go:generate go run ../../internal/gen/bindings ../..
//go:generate python3 ../../internal/coverage/coverage.py --names
