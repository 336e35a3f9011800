//go:build linux

#include <stddef.h>

#include "mpich.h"

#include "calls.h"
