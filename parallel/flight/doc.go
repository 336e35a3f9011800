// Package flight describes what ranks did last, for the time after a fault: which operations they called, and when these met and ended.
//
// Each process has a [Part], and [Merge] joins the parts of a world in a [Record]. A record is printed as a table in which ranks that disagree
// come first ([Record.Table]), and drawn as a trace for Perfetto ([Record.Trace]). [Part.Write] and [Read] keep parts in the files of a folder.
package flight
