# Debian packages only; `./dev setup` installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
set(TESSERA_BOOST_VERSION 1.74)               # also of the installed package
find_package(Boost ${TESSERA_BOOST_VERSION} REQUIRED)  # header-only: DLL, Beast, Asio
find_package(yaml-cpp 0.7 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(OpenSSL REQUIRED)                # SHA-256
find_package(prometheus-cpp REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
if(BUILD_TESTING)
  find_package(doctest 2.4 REQUIRED)
endif()
