package bind

// Go reads the files of a package for these lines in the order of their names, and fails where one of them is gone. So they stand
// behind gen_*.go, of which the first of them removes the families that are no more.

//go:generate go run ../../internal/gen/bindings ../..
//go:generate python3 ../../internal/coverage/coverage.py --names
