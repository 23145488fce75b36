//! Vector instructions that move: loads, stores, shuffles, blends, masks. A row: name, operands,
//! whether the legacy form overwrites an operand, the operand that may be in memory, and the codes
//! of the legacy form, of VEX with 16 and 32 bytes, and of EVEX with 16, 32 and 64 bytes.

use super::inst::rows;

rows! {
    MOVES
    SHUFPS "wwwi" tied Last:
        Shufps_xmm_xmmm128_imm8 VEX_Vshufps_xmm_xmm_xmmm128_imm8
        VEX_Vshufps_ymm_ymm_ymmm256_imm8 EVEX_Vshufps_xmm_k1z_xmm_xmmm128b32_imm8
        EVEX_Vshufps_ymm_k1z_ymm_ymmm256b32_imm8 EVEX_Vshufps_zmm_k1z_zmm_zmmm512b32_imm8;
    UNPCKLPD "www" tied Last:
        Unpcklpd_xmm_xmmm128 VEX_Vunpcklpd_xmm_xmm_xmmm128 VEX_Vunpcklpd_ymm_ymm_ymmm256
        EVEX_Vunpcklpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vunpcklpd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vunpcklpd_zmm_k1z_zmm_zmmm512b64;
    KBLENDPS "www" free Last:
        INVALID INVALID INVALID EVEX_Vblendmps_xmm_k1z_xmm_xmmm128b32
        EVEX_Vblendmps_ymm_k1z_ymm_ymmm256b32 EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32;
    KBLENDPD "www" free Last:
        INVALID INVALID INVALID EVEX_Vblendmpd_xmm_k1z_xmm_xmmm128b64
        EVEX_Vblendmpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vblendmpd_zmm_k1z_zmm_zmmm512b64;
    KBLENDB "www" free Last:
        INVALID INVALID INVALID EVEX_Vpblendmb_xmm_k1z_xmm_xmmm128
        EVEX_Vpblendmb_ymm_k1z_ymm_ymmm256 EVEX_Vpblendmb_zmm_k1z_zmm_zmmm512;
    KBLENDW "www" free Last:
        INVALID INVALID INVALID EVEX_Vpblendmw_xmm_k1z_xmm_xmmm128
        EVEX_Vpblendmw_ymm_k1z_ymm_ymmm256 EVEX_Vpblendmw_zmm_k1z_zmm_zmmm512;
    MOVUPS "ww" free Last:
        Movups_xmm_xmmm128 VEX_Vmovups_xmm_xmmm128 VEX_Vmovups_ymm_ymmm256
        EVEX_Vmovups_xmm_k1z_xmmm128 EVEX_Vmovups_ymm_k1z_ymmm256 EVEX_Vmovups_zmm_k1z_zmmm512;
    STORE_UPS "ww" free First:
        Movups_xmmm128_xmm VEX_Vmovups_xmmm128_xmm VEX_Vmovups_ymmm256_ymm
        EVEX_Vmovups_xmmm128_k1z_xmm EVEX_Vmovups_ymmm256_k1z_ymm EVEX_Vmovups_zmmm512_k1z_zmm;
    STORE_STREAM "ww" free First:
        INVALID VEX_Vmovntps_m128_xmm VEX_Vmovntps_m256_ymm EVEX_Vmovntps_m128_xmm
        EVEX_Vmovntps_m256_ymm EVEX_Vmovntps_m512_zmm;
    MOVDQU8 "ww" free Last:
        INVALID INVALID INVALID EVEX_Vmovdqu8_xmm_k1z_xmmm128 EVEX_Vmovdqu8_ymm_k1z_ymmm256
        EVEX_Vmovdqu8_zmm_k1z_zmmm512;
    STORE_DQU8 "ww" free First:
        INVALID INVALID INVALID EVEX_Vmovdqu8_xmmm128_k1z_xmm EVEX_Vmovdqu8_ymmm256_k1z_ymm
        EVEX_Vmovdqu8_zmmm512_k1z_zmm;
    MOVDQU16 "ww" free Last:
        INVALID INVALID INVALID EVEX_Vmovdqu16_xmm_k1z_xmmm128 EVEX_Vmovdqu16_ymm_k1z_ymmm256
        EVEX_Vmovdqu16_zmm_k1z_zmmm512;
    STORE_DQU16 "ww" free First:
        INVALID INVALID INVALID EVEX_Vmovdqu16_xmmm128_k1z_xmm EVEX_Vmovdqu16_ymmm256_k1z_ymm
        EVEX_Vmovdqu16_zmmm512_k1z_zmm;
    MOVUPD "ww" free Last:
        INVALID INVALID INVALID EVEX_Vmovupd_xmm_k1z_xmmm128 EVEX_Vmovupd_ymm_k1z_ymmm256
        EVEX_Vmovupd_zmm_k1z_zmmm512;
    STORE_UPD "ww" free First:
        INVALID INVALID INVALID EVEX_Vmovupd_xmmm128_k1z_xmm EVEX_Vmovupd_ymmm256_k1z_ymm
        EVEX_Vmovupd_zmmm512_k1z_zmm;
    MOVAPS "ww" free Last:
        Movaps_xmm_xmmm128 VEX_Vmovaps_xmm_xmmm128 VEX_Vmovaps_ymm_ymmm256
        EVEX_Vmovaps_xmm_k1z_xmmm128 EVEX_Vmovaps_ymm_k1z_ymmm256 EVEX_Vmovaps_zmm_k1z_zmmm512;
    BROADCASTSS "ws" free Never:
        INVALID VEX_Vbroadcastss_xmm_xmm VEX_Vbroadcastss_ymm_xmm
        EVEX_Vbroadcastss_xmm_k1z_xmmm32 EVEX_Vbroadcastss_ymm_k1z_xmmm32
        EVEX_Vbroadcastss_zmm_k1z_xmmm32;
    BROADCASTSD "wd" free Never:
        INVALID INVALID VEX_Vbroadcastsd_ymm_xmm INVALID EVEX_Vbroadcastsd_ymm_k1z_xmmm64
        EVEX_Vbroadcastsd_zmm_k1z_xmmm64;
    LOAD_BROADCASTSS "ws" free Last:
        INVALID VEX_Vbroadcastss_xmm_m32 VEX_Vbroadcastss_ymm_m32
        EVEX_Vbroadcastss_xmm_k1z_xmmm32 EVEX_Vbroadcastss_ymm_k1z_xmmm32
        EVEX_Vbroadcastss_zmm_k1z_xmmm32;
    LOAD_BROADCASTSD "wd" free Last:
        INVALID INVALID VEX_Vbroadcastsd_ymm_m64 INVALID EVEX_Vbroadcastsd_ymm_k1z_xmmm64
        EVEX_Vbroadcastsd_zmm_k1z_xmmm64;
    PUNPCKLWD "www" tied Last:
        Punpcklwd_xmm_xmmm128 VEX_Vpunpcklwd_xmm_xmm_xmmm128 VEX_Vpunpcklwd_ymm_ymm_ymmm256
        EVEX_Vpunpcklwd_xmm_k1z_xmm_xmmm128 EVEX_Vpunpcklwd_ymm_k1z_ymm_ymmm256
        EVEX_Vpunpcklwd_zmm_k1z_zmm_zmmm512;
    PUNPCKLDQ "www" tied Last:
        Punpckldq_xmm_xmmm128 VEX_Vpunpckldq_xmm_xmm_xmmm128 VEX_Vpunpckldq_ymm_ymm_ymmm256
        EVEX_Vpunpckldq_xmm_k1z_xmm_xmmm128b32 EVEX_Vpunpckldq_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpunpckldq_zmm_k1z_zmm_zmmm512b32;
    PUNPCKLQDQ "www" tied Last:
        Punpcklqdq_xmm_xmmm128 VEX_Vpunpcklqdq_xmm_xmm_xmmm128 VEX_Vpunpcklqdq_ymm_ymm_ymmm256
        EVEX_Vpunpcklqdq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpunpcklqdq_ymm_k1z_ymm_ymmm256b64
        EVEX_Vpunpcklqdq_zmm_k1z_zmm_zmmm512b64;
    PSHUFB "www" tied Last:
        Pshufb_xmm_xmmm128 VEX_Vpshufb_xmm_xmm_xmmm128 VEX_Vpshufb_ymm_ymm_ymmm256
        EVEX_Vpshufb_xmm_k1z_xmm_xmmm128 EVEX_Vpshufb_ymm_k1z_ymm_ymmm256
        EVEX_Vpshufb_zmm_k1z_zmm_zmmm512;
    PBROADCASTB "wx" free Last:
        INVALID VEX_Vpbroadcastb_xmm_xmmm8 VEX_Vpbroadcastb_ymm_xmmm8
        EVEX_Vpbroadcastb_xmm_k1z_xmmm8 EVEX_Vpbroadcastb_ymm_k1z_xmmm8
        EVEX_Vpbroadcastb_zmm_k1z_xmmm8;
    PBROADCASTB_R "wr" free Never:
        INVALID INVALID INVALID EVEX_Vpbroadcastb_xmm_k1z_r32 EVEX_Vpbroadcastb_ymm_k1z_r32
        EVEX_Vpbroadcastb_zmm_k1z_r32;
    PMOVM2B "wk" free Never:
        INVALID INVALID INVALID EVEX_Vpmovm2b_xmm_kr EVEX_Vpmovm2b_ymm_kr EVEX_Vpmovm2b_zmm_kr;
    PBROADCASTW "wx" free Last:
        INVALID VEX_Vpbroadcastw_xmm_xmmm16 VEX_Vpbroadcastw_ymm_xmmm16
        EVEX_Vpbroadcastw_xmm_k1z_xmmm16 EVEX_Vpbroadcastw_ymm_k1z_xmmm16
        EVEX_Vpbroadcastw_zmm_k1z_xmmm16;
    PBROADCASTW_R "wr" free Never:
        INVALID INVALID INVALID EVEX_Vpbroadcastw_xmm_k1z_r32 EVEX_Vpbroadcastw_ymm_k1z_r32
        EVEX_Vpbroadcastw_zmm_k1z_r32;
    PMOVM2W "wk" free Never:
        INVALID INVALID INVALID EVEX_Vpmovm2w_xmm_kr EVEX_Vpmovm2w_ymm_kr EVEX_Vpmovm2w_zmm_kr;
    PBROADCASTD "wx" free Last:
        INVALID VEX_Vpbroadcastd_xmm_xmmm32 VEX_Vpbroadcastd_ymm_xmmm32
        EVEX_Vpbroadcastd_xmm_k1z_xmmm32 EVEX_Vpbroadcastd_ymm_k1z_xmmm32
        EVEX_Vpbroadcastd_zmm_k1z_xmmm32;
    PBROADCASTD_R "wr" free Never:
        INVALID INVALID INVALID EVEX_Vpbroadcastd_xmm_k1z_r32 EVEX_Vpbroadcastd_ymm_k1z_r32
        EVEX_Vpbroadcastd_zmm_k1z_r32;
    PMOVM2D "wk" free Never:
        INVALID INVALID INVALID EVEX_Vpmovm2d_xmm_kr EVEX_Vpmovm2d_ymm_kr EVEX_Vpmovm2d_zmm_kr;
    PBROADCASTQ "wx" free Last:
        INVALID VEX_Vpbroadcastq_xmm_xmmm64 VEX_Vpbroadcastq_ymm_xmmm64
        EVEX_Vpbroadcastq_xmm_k1z_xmmm64 EVEX_Vpbroadcastq_ymm_k1z_xmmm64
        EVEX_Vpbroadcastq_zmm_k1z_xmmm64;
    PBROADCASTQ_R "wR" free Never:
        INVALID INVALID INVALID EVEX_Vpbroadcastq_xmm_k1z_r64 EVEX_Vpbroadcastq_ymm_k1z_r64
        EVEX_Vpbroadcastq_zmm_k1z_r64;
    PMOVM2Q "wk" free Never:
        INVALID INVALID INVALID EVEX_Vpmovm2q_xmm_kr EVEX_Vpmovm2q_ymm_kr EVEX_Vpmovm2q_zmm_kr;
    PERMI2B "www" free Last:
        INVALID INVALID INVALID EVEX_Vpermi2b_xmm_k1z_xmm_xmmm128
        EVEX_Vpermi2b_ymm_k1z_ymm_ymmm256 EVEX_Vpermi2b_zmm_k1z_zmm_zmmm512;
    PERMI2W "www" free Last:
        INVALID INVALID INVALID EVEX_Vpermi2w_xmm_k1z_xmm_xmmm128
        EVEX_Vpermi2w_ymm_k1z_ymm_ymmm256 EVEX_Vpermi2w_zmm_k1z_zmm_zmmm512;
    PERMI2PS "www" free Last:
        INVALID INVALID INVALID EVEX_Vpermi2ps_xmm_k1z_xmm_xmmm128b32
        EVEX_Vpermi2ps_ymm_k1z_ymm_ymmm256b32 EVEX_Vpermi2ps_zmm_k1z_zmm_zmmm512b32;
    PERMI2PD "www" free Last:
        INVALID INVALID INVALID EVEX_Vpermi2pd_xmm_k1z_xmm_xmmm128b64
        EVEX_Vpermi2pd_ymm_k1z_ymm_ymmm256b64 EVEX_Vpermi2pd_zmm_k1z_zmm_zmmm512b64;
    PERMPS "www" free Last:
        INVALID INVALID VEX_Vpermps_ymm_ymm_ymmm256 INVALID EVEX_Vpermps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpermps_zmm_k1z_zmm_zmmm512b32;
    PSHUFD "wwi" free Last:
        Pshufd_xmm_xmmm128_imm8 VEX_Vpshufd_xmm_xmmm128_imm8 VEX_Vpshufd_ymm_ymmm256_imm8
        EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8 EVEX_Vpshufd_ymm_k1z_ymmm256b32_imm8
        EVEX_Vpshufd_zmm_k1z_zmmm512b32_imm8;
    PSRLDQ_I "wwi" tied Never:
        Psrldq_xmm_imm8 VEX_Vpsrldq_xmm_xmm_imm8 VEX_Vpsrldq_ymm_ymm_imm8
        EVEX_Vpsrldq_xmm_xmmm128_imm8 EVEX_Vpsrldq_ymm_ymmm256_imm8
        EVEX_Vpsrldq_zmm_zmmm512_imm8;
    EXTRACT128 "xwi" free First:
        INVALID INVALID VEX_Vextractf128_xmmm128_ymm_imm8 INVALID
        EVEX_Vextractf32x4_xmmm128_k1z_ymm_imm8 EVEX_Vextractf32x4_xmmm128_k1z_zmm_imm8;
    EXTRACT256 "hwi" free First:
        INVALID INVALID INVALID INVALID INVALID EVEX_Vextractf64x4_ymmm256_k1z_zmm_imm8;
    INSERT128 "wwxi" free Last:
        INVALID INVALID VEX_Vinsertf128_ymm_ymm_xmmm128_imm8 INVALID
        EVEX_Vinsertf32x4_ymm_k1z_ymm_xmmm128_imm8 EVEX_Vinsertf32x4_zmm_k1z_zmm_xmmm128_imm8;
    INSERT256 "wwhi" free Last:
        INVALID INVALID INVALID INVALID INVALID EVEX_Vinsertf64x4_zmm_k1z_zmm_ymmm256_imm8;
    MASK_LOADPS "www" free Last:
        INVALID VEX_Vmaskmovps_xmm_xmm_m128 VEX_Vmaskmovps_ymm_ymm_m256 INVALID INVALID INVALID;
    MASK_LOADPD "www" free Last:
        INVALID VEX_Vmaskmovpd_xmm_xmm_m128 VEX_Vmaskmovpd_ymm_ymm_m256 INVALID INVALID INVALID;
    MASK_STOREPS "www" free First:
        INVALID VEX_Vmaskmovps_m128_xmm_xmm VEX_Vmaskmovps_m256_ymm_ymm INVALID INVALID INVALID;
    MASK_STOREPD "www" free First:
        INVALID VEX_Vmaskmovpd_m128_xmm_xmm VEX_Vmaskmovpd_m256_ymm_ymm INVALID INVALID INVALID;
    BLENDVPS "wwww" free Never:
        INVALID VEX_Vblendvps_xmm_xmm_xmmm128_xmm VEX_Vblendvps_ymm_ymm_ymmm256_ymm INVALID
        INVALID INVALID;
    BLENDVB "wwww" free Never:
        INVALID VEX_Vpblendvb_xmm_xmm_xmmm128_xmm VEX_Vpblendvb_ymm_ymm_ymmm256_ymm INVALID
        INVALID INVALID;
    LOAD_SS "xx" free Last:
        Movss_xmm_xmmm32 VEX_Vmovss_xmm_m32 INVALID EVEX_Vmovss_xmm_k1z_m32 INVALID INVALID;
    LOAD_SD "xx" free Last:
        Movsd_xmm_xmmm64 VEX_Vmovsd_xmm_m64 INVALID EVEX_Vmovsd_xmm_k1z_m64 INVALID INVALID;
    STORE_SS "xx" free First:
        Movss_xmmm32_xmm VEX_Vmovss_m32_xmm INVALID EVEX_Vmovss_m32_k1_xmm INVALID INVALID;
    STORE_SD "xx" free First:
        Movsd_xmmm64_xmm VEX_Vmovsd_m64_xmm INVALID EVEX_Vmovsd_m64_k1_xmm INVALID INVALID;
    MOVD "xr" free Last:
        Movd_xmm_rm32 VEX_Vmovd_xmm_rm32 INVALID EVEX_Vmovd_xmm_rm32 INVALID INVALID;
    MOVQ "xR" free Last:
        Movq_xmm_rm64 VEX_Vmovq_xmm_rm64 INVALID EVEX_Vmovq_xmm_rm64 INVALID INVALID;
    MOVD_R "rx" free First:
        Movd_rm32_xmm VEX_Vmovd_rm32_xmm INVALID EVEX_Vmovd_rm32_xmm INVALID INVALID;
    MOVQ_R "Rx" free First:
        Movq_rm64_xmm VEX_Vmovq_rm64_xmm INVALID EVEX_Vmovq_rm64_xmm INVALID INVALID;
    PEXTRW "rxi" free Never:
        Pextrw_r32_xmm_imm8 VEX_Vpextrw_r32_xmm_imm8 INVALID EVEX_Vpextrw_r32_xmm_imm8 INVALID
        INVALID;
    KAND "kkk" free Never:
        INVALID INVALID INVALID VEX_Kandq_kr_kr_kr INVALID INVALID;
    KOR "kkk" free Never:
        INVALID INVALID INVALID VEX_Korq_kr_kr_kr INVALID INVALID;
    KXOR "kkk" free Never:
        INVALID INVALID INVALID VEX_Kxorq_kr_kr_kr INVALID INVALID;
    KANDN "kkk" free Never:
        INVALID INVALID INVALID VEX_Kandnq_kr_kr_kr INVALID INVALID;
    KXNOR "kkk" free Never:
        INVALID INVALID INVALID VEX_Kxnorq_kr_kr_kr INVALID INVALID;
    KMOV_TO_R "Rk" free Never:
        INVALID INVALID INVALID VEX_Kmovq_r64_kr INVALID INVALID;
    KMOV_FROM_R "kR" free Never:
        INVALID INVALID INVALID VEX_Kmovq_kr_r64 INVALID INVALID;
}
