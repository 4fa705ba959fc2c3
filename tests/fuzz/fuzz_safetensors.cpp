// Any bytes as a safetensors file: opened or refused with a sentence, never a crash; what opens lies inside the file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/checkpoint.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = memfd_create("safetensors", MFD_CLOEXEC);
  if (file < 0) std::abort();
  for (std::size_t done = 0; done < size;) {
    const ssize_t written = write(file, data + done, size - done);
    if (written <= 0) std::abort();
    done += static_cast<std::size_t>(written);
  }
  auto checkpoint = Checkpoint::open_file("/proc/self/fd/" + std::to_string(file));
  close(file);  // the mapping outlives it
  if (!checkpoint.ok()) {
    if (checkpoint.status().message[0] == '\0') std::abort();
    return 0;
  }
  std::size_t total = 0;
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    if (to_f32(tensor).size() * sdk::dtype_bytes(tensor.dtype) != tensor.bytes) std::abort();
    total += tensor.bytes;
    auto taken = checkpoint->take(tensor.name, tensor.shape);
    if (!taken.ok() || taken->data != tensor.data) std::abort();
  }
  if (total > size || !checkpoint->all_taken().ok()) std::abort();
  return 0;
}
