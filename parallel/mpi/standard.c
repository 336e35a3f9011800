//go:build linux

#include <stddef.h>

#include "standard.h"

#include "calls.h"
