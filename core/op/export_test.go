package op

import "maps"

// ArgumentDocs returns what arguments are said to be where rows do not say it.
func ArgumentDocs() map[string]string {
	all := maps.Clone(arguments)
	maps.Copy(all, argumentOf)
	return all
}
