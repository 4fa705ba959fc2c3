// The published hashes of a model's files, where they lie beside it.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "base/sha256.h"
#include "base/status.h"

namespace tessera {

/// SHA256SUMS of the folder, as sha256sum writes it. Refuses files of `files` (name to digest) whose bytes are others,
/// or that it does not list: the right size says nothing. Without such a file nothing is promised.
Status check_manifest(const std::filesystem::path& model_dir, const std::map<std::string, Digest>& files);

}  // namespace tessera
