// The driver's library must not be called while exit() takes it down, nor in a forked child. Every call to it is between
// plaitk_cu_guard_enter and plaitk_cu_guard_leave.
#ifndef PLAIT_CUDA_GUARD_H
#define PLAIT_CUDA_GUARD_H

#include "shim.h"

extern const char plaitk_cu_leaving[];

// plaitk_cu_guard_enter returns 0 if the process ends or is a fork.
int plaitk_cu_guard_enter(void);
void plaitk_cu_guard_leave(void);

// plaitk_cu_guard_add and plaitk_cu_guard_remove keep the list of open devices.
void plaitk_cu_guard_add(plaitk_cu *g);
void plaitk_cu_guard_remove(plaitk_cu *g);

#endif
