//go:build linux

#include <stddef.h>

#include "openmpi.h"

#include "calls.h"
