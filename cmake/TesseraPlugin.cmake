# Used in tree and by out-of-tree plugins, which get it from find_package(tessera).
set(TESSERA_PLUGIN_MAP "${CMAKE_CURRENT_LIST_DIR}/plugin.map")

# tessera_add_plugin(<target> KIND <backend|attention|sparse_decode|protocol> NAME <name> [DEVICE <cpu|cuda>] SOURCES ...)
#
# Builds plugins/<kind>/<name>[.<device>].so, which exports one symbol and leaves none undefined; `cmake --install` puts
# it where an engine of the same prefix finds it. A plugin for DEVICE cuda may have .cu sources;
# TESSERA_REGISTER_PLUGIN stays in a .cpp, because nvcc cannot compile Boost.DLL.
function(tessera_add_plugin target)
  cmake_parse_arguments(PLUGIN "" "KIND;NAME;DEVICE" "SOURCES" ${ARGN})
  set(stem "${PLUGIN_NAME}")
  if(PLUGIN_DEVICE)
    string(APPEND stem ".${PLUGIN_DEVICE}")
  endif()
  add_library(${target} MODULE ${PLUGIN_SOURCES})
  target_link_libraries(${target} PRIVATE tessera::sdk)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)  # fused only where written
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX ".so" OUTPUT_NAME "${stem}"
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/plugins/${PLUGIN_KIND}"
    CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    INSTALL_RPATH_USE_LINK_PATH ON
    LINK_DEPENDS "${TESSERA_PLUGIN_MAP}")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${TESSERA_PLUGIN_MAP}")
  if(NOT TESSERA_SANITIZE)  # sanitizer runtimes are resolved in the executable
    target_link_options(${target} PRIVATE "LINKER:--no-undefined")
  endif()
  if(PLUGIN_DEVICE STREQUAL "cuda")
    tessera_cuda_plugin(${target})
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION "lib/tessera/plugins/${PLUGIN_KIND}" COMPONENT plugins)
endfunction()

# One arithmetic on the GPU too: no contraction, IEEE division and square root, subnormals kept (nvcc's defaults).
function(tessera_cuda_plugin target)
  if(NOT TESSERA_CUDA)
    message(FATAL_ERROR "${target} needs nvcc; out of tree, also find_package(tessera REQUIRED COMPONENTS cuda)")
  endif()
  string(REGEX REPLACE "-(real|virtual)" "" compiled "${CMAKE_CUDA_ARCHITECTURES}")
  string(REPLACE ";" "\\;" compiled "${compiled}")  # else it would be two definitions
  target_compile_definitions(${target} PRIVATE "TESSERA_GPU_ARCHITECTURES=\"${compiled}\"")
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-lineinfo;-Xcompiler=-ffp-contract=off>)
  target_link_libraries(${target} PRIVATE CUDA::cudart)
  set_target_properties(${target} PROPERTIES CUDA_VISIBILITY_PRESET hidden LINKER_LANGUAGE CXX)
endfunction()

# tessera_isa_sources(<target> <file.cpp>...): compiles each file once for every instruction set of sdk::CpuIsa, with
# TESSERA_ISA naming the namespace (scalar, avx2, avx512). Such a file includes nothing whose functions could be merged
# with baseline code: sdk/numerics.h, intrinsics and plain declarations only.
function(tessera_isa_sources target)
  set(flags_scalar "")
  set(flags_avx2 "-mavx2;-mfma")
  set(flags_avx512 "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx2;-mfma;-mprefer-vector-width=512")
  set(optimize -O3)
  if(TESSERA_SANITIZE)  # instrumented kernels take minutes to optimize
    set(optimize -O1)
  endif()
  foreach(source IN LISTS ARGN)
    get_filename_component(stem "${source}" NAME_WE)
    foreach(isa scalar avx2 avx512)
      set(library "${target}_${stem}_${isa}")
      add_library(${library} OBJECT "${source}")
      set_target_properties(${library} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
      target_link_libraries(${library} PRIVATE tessera::sdk)
      target_compile_definitions(${library} PRIVATE TESSERA_ISA=${isa} TESSERA_ISA_${isa}=1)
      target_compile_options(${library} PRIVATE ${optimize} -fno-math-errno -ffp-contract=off ${flags_${isa}})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
    endforeach()
  endforeach()
endfunction()
