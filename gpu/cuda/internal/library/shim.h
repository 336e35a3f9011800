// How libraries are opened while the program runs.
#ifndef PLAIT_CUDA_LIBRARY_SHIM_H
#define PLAIT_CUDA_LIBRARY_SHIM_H

#define PLAITK_LIBRARY_TEXT 1024

// plaitk_library_open opens a library by path or soname, and writes the path of its file to text. With loaded, it opens
// only what the process has loaded. On failure it returns NULL, with the reason in text.
void *plaitk_library_open(const char *name, int loaded, char text[PLAITK_LIBRARY_TEXT]);

// plaitk_library_symbol returns NULL if the library has no function of the name.
void *plaitk_library_symbol(void *library, const char *name);

#endif
