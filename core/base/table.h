// Readable tables for people.
#pragma once
#include <string>
#include <vector>

namespace tessera {

/// First row is the header. Columns whose body cells all look like numbers are set to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera
