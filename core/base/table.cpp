#include "base/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace tessera {
namespace {

bool looks_numeric(const std::string& cell) {
  return cell.empty() || cell == "-" || std::isdigit(static_cast<unsigned char>(cell[0])) != 0 ||
         (cell.size() > 1 && (cell[0] == '-' || cell[0] == '+' || cell[0] == '.') &&
          std::isdigit(static_cast<unsigned char>(cell[1])) != 0);
}

}  // namespace

std::string Table::text() const {
  const std::size_t columns = rows_[0].size();
  std::vector<std::size_t> width(columns, 0);
  std::vector<bool> numeric(columns, rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r)
    for (std::size_t c = 0; c < columns && c < rows_[r].size(); ++c) {
      width[c] = std::max(width[c], rows_[r][c].size());
      if (r > 0 && !looks_numeric(rows_[r][c])) numeric[c] = false;
    }
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string& cell = c < rows_[r].size() ? rows_[r][c] : std::string();
      line += numeric[c] ? fmt::format("{:>{}}", cell, width[c]) : fmt::format("{:<{}}", cell, width[c]);
      if (c + 1 < columns) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    if (r == 0) {
      std::size_t total = 0;
      for (std::size_t w : width) total += w + 2;
      out += std::string(total - 2, '-') + "\n";
    }
  }
  return out;
}

}  // namespace tessera
