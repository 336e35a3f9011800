// Command libplait is the shared library for C programs: build it with -buildmode=c-shared.
package main

import _ "github.com/plait-ml/plait/capi"

func main() {}
