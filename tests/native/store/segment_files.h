// The files of a store in memory: read, changed, sealed again, written elsewhere.
#ifndef TFHYBRID_TESTS_NATIVE_STORE_SEGMENT_FILES_H_
#define TFHYBRID_TESTS_NATIVE_STORE_SEGMENT_FILES_H_

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "core/store/layout.h"
#include "core/store/segment.h"

namespace tfhybrid {

using Files = std::map<std::string, std::string>;  // content by name

inline std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

inline Files ReadFiles(const std::string& directory) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files[entry.path().filename().string()] = ReadFile(entry.path().string());
  }
  return files;
}

// Without the zeros at its end.
inline std::string Trimmed(const std::string& content) {
  return content.substr(0, content.find_last_not_of('\0') + 1);
}

// With the mode of a store's files. Zeros at the end become a hole.
inline void WriteFile(const std::string& path, const std::string& content) {
  const std::string start = Trimmed(content);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const bool written =
      file >= 0 && ftruncate(file, static_cast<off_t>(content.size())) == 0 &&
      pwrite(file, start.data(), start.size(), 0) == static_cast<ssize_t>(start.size());
  if (!written) std::abort();
  close(file);
}

inline void WriteFiles(const Files& files, const std::string& directory) {
  for (const auto& [name, content] : files) WriteFile(directory + "/" + name, content);
}

// The header of a segment; what is too short for one reads as zeros.
inline SegmentHeader HeaderOf(const std::string& segment) {
  SegmentHeader header = {};
  if (segment.size() >= sizeof(header)) std::memcpy(&header, segment.data(), sizeof(header));
  return header;
}

// Makes `uid` the owner of a segment, with the checksum that belongs to it. Other files stay.
inline void Reseal(uint32_t uid, std::string* segment) {
  SegmentHeader header = HeaderOf(*segment);
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) return;
  header.uid = uid;
  TableShape shape = {};
  const bool is_table = header.kind == static_cast<uint32_t>(SegmentKind::kTable) &&
                        segment->size() >= sizeof(TableSegment);
  if (is_table) {
    std::memcpy(&shape, segment->data() + offsetof(TableSegment, shape), sizeof(shape));
  }
  header.crc = SegmentCrc(header, &shape, is_table ? sizeof(shape) : 0);
  std::memcpy(segment->data(), &header, sizeof(header));
}

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_STORE_SEGMENT_FILES_H_
