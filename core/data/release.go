package data

import (
	"reflect"

	"github.com/plait-ml/plait/core"
)

// Release releases the tensors of a batch at once, where a program does not leave that to the garbage collector: those in
// its slices, arrays, maps and exported fields, and whatever has a Release method.
func Release(batch any) {
	switch b := batch.(type) {
	case nil:
	case *core.Tensor:
		b.Release()
	case []*core.Tensor:
		for _, t := range b {
			t.Release()
		}
	case interface{ Release() }:
		if v := reflect.ValueOf(b); v.Kind() != reflect.Pointer || !v.IsNil() {
			b.Release()
		}
	default:
		releaseParts(reflect.ValueOf(batch))
	}
}

func releaseParts(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		switch v.Type().Elem().Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Slice, reflect.Array, reflect.Map:
			for i := range v.Len() {
				Release(v.Index(i).Interface())
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			Release(entries.Value().Interface())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Release(v.Field(i).Interface())
			}
		}
	}
}
