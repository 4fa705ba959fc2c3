#include "kit/elf.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace tessera {
namespace {

/// The bytes of a file, read by offset; everything out of range reads as absent.
class Image {
 public:
  explicit Image(std::string bytes) : bytes_(std::move(bytes)) {}

  template <class T>
  bool read(std::uint64_t offset, T& out) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return false;
    std::memcpy(&out, bytes_.data() + offset, sizeof(T));
    return true;
  }
  /// Entry `index` of a table of T's.
  template <class T>
  bool entry(std::uint64_t table, std::uint64_t index, T& out) const {
    return index < bytes_.size() && table < bytes_.size() && read(table + index * sizeof(T), out);
  }
  std::string text(const Elf64_Shdr& strings, std::uint64_t index) const {
    const std::uint64_t begin = strings.sh_offset + index;
    if (index >= strings.sh_size || begin >= bytes_.size()) return {};
    return bytes_.c_str() + begin;  // ends at the latest where the string does
  }

 private:
  std::string bytes_;
};

void read_symbols(const Image& image, const Elf64_Shdr& table, const Elf64_Shdr& strings, ElfFacts& facts) {
  for (std::uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
    Elf64_Sym symbol;
    if (!image.entry(table.sh_offset, i, symbol)) return;
    const bool visible = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL &&
                         (symbol.st_other == STV_DEFAULT || symbol.st_other == STV_PROTECTED);
    if (visible && symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS)
      facts.exported.push_back(image.text(strings, symbol.st_name));
  }
}

void read_dynamic(const Image& image, const Elf64_Shdr& table, const Elf64_Shdr& strings, ElfFacts& facts) {
  for (std::uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Dyn); ++i) {
    Elf64_Dyn entry;
    if (!image.entry(table.sh_offset, i, entry) || entry.d_tag == DT_NULL) return;
    if (entry.d_tag != DT_RPATH && entry.d_tag != DT_RUNPATH) continue;
    std::istringstream parts(image.text(strings, entry.d_un.d_val));
    for (std::string part; std::getline(parts, part, ':');) facts.search_paths.push_back(part);
  }
}

bool is_library(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_type == ET_DYN;
}

}  // namespace

Result<ElfFacts> read_elf(const std::filesystem::path& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!std::filesystem::is_regular_file(path, error) || !file)
    return fail(Code::not_found, "{}: there is no such file", path.string());
  const Image image(std::string(std::istreambuf_iterator<char>(file), {}));
  Elf64_Ehdr header;
  if (!image.read(0, header) || !is_library(header))
    return fail(Code::invalid_argument, "{}: is no ELF shared library; wanted one built with tessera_add_plugin()",
                path.string());
  ElfFacts facts;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (image.entry(header.e_phoff, i, segment) && segment.p_type == PT_GNU_STACK)
      facts.executable_stack = (segment.p_flags & PF_X) != 0;
  }
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section, strings;
    if (!image.entry(header.e_shoff, i, section) || !image.entry(header.e_shoff, section.sh_link, strings)) continue;
    if (section.sh_type == SHT_DYNSYM) read_symbols(image, section, strings, facts);
    if (section.sh_type == SHT_DYNAMIC) read_dynamic(image, section, strings, facts);
  }
  return facts;
}

}  // namespace tessera
