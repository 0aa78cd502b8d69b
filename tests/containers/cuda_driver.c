/* A stand-in for NVIDIA's libcuda.so.1 that lists one card and runs nothing on it. Variables of the environment:
   CARD    name, compute capability and GiB of memory, such as "NVIDIA L4,89,22"; without it there is no card
   CUDA    newest version of CUDA that the driver supports, such as 13000 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_INITIALIZED = 3, NO_DEVICE = 100, MAJOR = 75, MINOR = 76 };

static char name[128];
static int capability, gigabytes;

static int number(const char *variable, int otherwise) {
  const char *value = getenv(variable);
  return value ? atoi(value) : otherwise;
}

int cuInit(unsigned flags) {
  static pid_t owner; /* as NVIDIA's driver, a forked process can't use the driver of its parent */
  const char *card = getenv("CARD");
  (void)flags;
  if (owner && owner != getpid()) return NOT_INITIALIZED;
  owner = getpid();
  return card && sscanf(card, "%127[^,],%d,%d", name, &capability, &gigabytes) == 3 ? 0 : NO_DEVICE;
}

int cuDriverGetVersion(int *version) { *version = number("CUDA", 13000); return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *out, int size, int device) {
  (void)device;
  strncpy(out, name, (size_t)size - 1);
  out[size - 1] = 0;
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)gigabytes << 30;
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == MAJOR ? capability / 10 : attribute == MINOR ? capability % 10 : 0;
  return 0;
}
